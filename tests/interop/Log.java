import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A broker's log, told what to do on standard input; a line each, its words separated by tabs:
 *
 * `open` directory, log start offset, clock in ms, settings as `name=value,name=value`: as after a clean stop;
 * `leader`, `coordinator` or `follower`, leader epoch, file, position, size: appends these bytes of the file: a line `first last`
 * offset, or the name of the exception; the epoch of a follower is what its batches have;
 * `read` sizes as `size,size`: for every offset and one more on each side, and every size, a line `offset size segment position bytes`: where
 * the whole batches lie that a reader gets who doubles the size until there is one; or `offset size exception`;
 * `times` timestamps as `timestamp,timestamp`: a line `timestamp offset timestamp` each, of the first record that is not earlier, or `timestamp none`;
 * `delete` number: the log start offset goes to where the segment begins that has so many before it, and these go away: a line with how many do;
 * `close`: as a broker that stops.
 *
 * Behind what a command prints stands a line with its name.
 */
public class Log {
    private static final int DAY_MS = 86_400_000;
    /** `transaction.version` 1: a marker has the producer's epoch, or a later one. */
    private static final short FENCES_OLDER_EPOCHS = 1;
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);
    private static final ProducerStateManagerConfig PRODUCERS = new ProducerStateManagerConfig(DAY_MS, false);

    private final Deque<Runnable> tasks = new ArrayDeque<>();
    private final Map<String, byte[]> files = new HashMap<>();
    private final PrintStream out;
    private UnifiedLog log;

    private Log(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Log log = new Log(output);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            log.run(words);
            output.println(words[0]);
        }
        output.flush();
        System.exit(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "open" -> open(new File(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]), settings(words[4]));
            case "leader", "coordinator", "follower" -> append(words[0], Integer.parseInt(words[1]), records(words));
            case "read" -> read(Arrays.stream(words[1].split(",")).mapToInt(Integer::parseInt).toArray());
            case "times" -> times(Arrays.stream(words[1].split(",")).mapToLong(Long::parseLong).toArray());
            case "delete" -> {
                long start = new ArrayList<>(log.logSegments()).get(Integer.parseInt(words[1])).baseOffset();
                log.updateHighWatermark(log.logEndOffset());
                log.maybeIncrementLogStartOffset(start, LogStartOffsetIncrementReason.ClientRecordDeletion);
                out.println(log.deleteOldSegments());
            }
            case "close" -> {
                log.flush(true);
                tasks();
                log.close();
                tasks();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static Map<String, String> settings(String text) {
        Map<String, String> found = new HashMap<>();
        for (String setting : text.split(",")) {
            String[] pair = setting.split("=", 2);
            if (pair.length == 2)
                found.put(pair[0], pair[1]);
        }
        return found;
    }

    private void tasks() {
        while (!tasks.isEmpty())
            tasks.remove().run();
    }

    private void open(File directory, long start, long nowMs, Map<String, String> settings) throws IOException {
        // What is to be done later is done when the log is closed, in order: nothing depends on threads.
        InvocationHandler keeps = (self, method, arguments) -> {
            if (method.isDefault())
                return InvocationHandler.invokeDefault(self, method, arguments);
            if (method.getName().equals("schedule") && (long) arguments[3] < 0)
                tasks.add((Runnable) arguments[1]);
            return method.getReturnType() == ScheduledFuture.class ? NEVER : null;
        };
        ClassLoader loader = Log.class.getClassLoader();
        Scheduler scheduler = (Scheduler) Proxy.newProxyInstance(loader, new Class<?>[] {Scheduler.class}, keeps);
        Files.createDirectories(directory.toPath());
        log = UnifiedLog.create(directory, new LogConfig(settings), start, 0, scheduler, STATS, new Standing(nowMs), 900_000, PRODUCERS,
            600_000, new LogDirFailureChannel(1), true, Optional.empty(), new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        tasks();
    }

    private static final ScheduledFuture<?> NEVER = (ScheduledFuture<?>) Proxy.newProxyInstance(Log.class.getClassLoader(),
        new Class<?>[] {ScheduledFuture.class}, (self, method, arguments) -> method.getReturnType() == boolean.class ? true : null);

    private record Standing(long milliseconds) implements Time {
        @Override
        public long nanoseconds() {
            return 0;
        }

        @Override
        public void sleep(long ms) { }

        @Override
        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) { }
    }

    /** A copy: a leader writes offsets into what it is given. */
    private MemoryRecords records(String[] words) throws IOException {
        byte[] data = files.get(words[2]);
        if (data == null) {
            data = Files.readAllBytes(Path.of(words[2]));
            files.put(words[2], data);
        }
        int position = Integer.parseInt(words[3]);
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Arrays.copyOfRange(data, position, position + Integer.parseInt(words[4]))));
    }

    private void append(String how, int epoch, MemoryRecords records) {
        try {
            long end = log.logEndOffset();
            LogAppendInfo done = switch (how) {
                case "leader" -> log.appendAsLeader(records, epoch);
                case "coordinator" -> log.appendAsLeader(
                    records, epoch, AppendOrigin.COORDINATOR, RequestLocal.noCaching(), VerificationGuard.SENTINEL, FENCES_OLDER_EPOCHS);
                default -> log.appendAsFollower(records, epoch);
            };
            // A producer's batch that is there already is no error to a broker.
            out.println(log.logEndOffset() == end ? "Duplicate" : done.firstOffset() + " " + done.lastOffset());
        } catch (Exception refused) {
            out.println(refused.getClass().getSimpleName());
        }
    }

    private void read(int[] sizes) {
        for (long offset : offsets()) {
            for (int size : sizes) {
                try {
                    out.println(offset + " " + size + " " + read(offset, size));
                } catch (Exception refused) {
                    out.println(offset + " " + size + " " + refused.getClass().getSimpleName());
                }
            }
        }
    }

    /** Every offset, one more on each side, and of those that are missing the first and last. */
    private SortedSet<Long> offsets() {
        SortedSet<Long> found = new TreeSet<>(List.of(log.logStartOffset() - 1, log.logStartOffset(), log.logEndOffset(), log.logEndOffset() + 1));
        for (LogSegment segment : log.logSegments()) {
            found.add(segment.baseOffset());
            for (RecordBatch batch : segment.log().batches()) {
                LongStream.rangeClosed(batch.baseOffset() - 1, batch.lastOffset() + 1).forEach(found::add);
            }
        }
        return found;
    }

    private String read(long offset, int size) throws IOException {
        while (true) {
            FetchDataInfo found = log.read(offset, size, FetchIsolation.LOG_END, true);
            ByteBuffer data = ByteBuffer.allocate(found.records.sizeInBytes());
            if (found.records instanceof FileRecords file)
                file.readInto(data, 0);
            int whole = 0;
            int first = 0;
            while (data.limit() - whole >= Records.LOG_OVERHEAD) {
                int total = Records.LOG_OVERHEAD + data.getInt(whole + Records.SIZE_OFFSET);
                first = whole == 0 ? total : first;
                if (whole + total > data.limit())
                    break;
                whole += total;
            }
            if (first <= size)
                return found.fetchOffsetMetadata.segmentBaseOffset + " " + found.fetchOffsetMetadata.relativePositionInSegment + " " + whole;
            size *= 2;
        }
    }

    private void times(long[] timestamps) {
        for (long timestamp : timestamps) {
            var found = log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt();
            out.println(timestamp + " " + found.map(one -> one.offset + " " + one.timestamp).orElse("none"));
        }
    }
}
