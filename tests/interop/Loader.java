import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What a broker's log loader does with topic-partition directories after an unclean stop. Standard input: a line each, `directory TAB recovery
 * point TAB log start offset`, and behind them, for other than the usual, `TAB clock in ms TAB index.interval.bytes TAB clean`, the last one for a start after a
 * clean stop; directories as arguments are loaded by the clock of the machine; standard output: a line of
 * JSON each. The directories are changed as a broker would change them.
 */
public class Loader {
    private static final long NOW_MS = 1_900_000_000_000L;
    private static final int DAY_MS = 86_400_000;

    /** Keeps what it is given, and runs it in order when told to: results do not depend on threads. */
    private static final class Kept implements Scheduler {
        private final Deque<Runnable> tasks = new ArrayDeque<>();

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0)
                tasks.add(task);
            return NEVER;
        }

        @Override
        public void resizeThreadPool(int newSize) { }

        void run() {
            while (!tasks.isEmpty())
                tasks.remove().run();
        }
    }

    /** A clock that stands. The usual one is ahead of every record, so that producers without an open transaction have expired. */
    private static final class Standing implements Time {
        private final long nowMs;

        Standing(long nowMs) {
            this.nowMs = nowMs;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return 0;
        }

        @Override
        public void sleep(long ms) { }

        @Override
        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) { }
    }

    /** Stands for what is repeated: it can be cancelled. */
    private static final ScheduledFuture<?> NEVER = (ScheduledFuture<?>) Proxy.newProxyInstance(Loader.class.getClassLoader(),
        new Class<?>[] {ScheduledFuture.class}, (self, method, arguments) -> method.getReturnType() == boolean.class ? true : null);
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);
    private static final ProducerStateManagerConfig PRODUCERS = new ProducerStateManagerConfig(DAY_MS, false);

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            for (String directory : args)
                System.out.println(load(new File(directory), 0, 0, System.currentTimeMillis(), 4096, false));
            System.exit(0);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            long nowMs = parts.length > 3 ? Long.parseLong(parts[3]) : NOW_MS;
            int interval = parts.length > 4 ? Integer.parseInt(parts[4]) : 4096;
            boolean clean = parts.length > 5 && parts[5].equals("clean");
            output.println(load(new File(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[2]), nowMs, interval, clean));
        }
        output.flush();
        // Index files of what was refused stay mapped, and the cleaner of a failed directory is a thread.
        System.exit(0);
    }

    private static String load(File directory, long recoveryPoint, long logStartOffset, long nowMs, int interval, boolean clean) {
        Map<String, String> found = new TreeMap<>();
        Kept scheduler = new Kept();
        try {
            LogConfig config = new LogConfig(Map.of("index.interval.bytes", interval));
            UnifiedLog log = UnifiedLog.create(directory, config, logStartOffset, recoveryPoint, scheduler,
                STATS, new Standing(nowMs), 900_000, PRODUCERS, 600_000, new LogDirFailureChannel(1), clean, Optional.empty(),
                new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            log.flush(true);
            scheduler.run();
            log.updateHighWatermark(log.logEndOffset());
            found.put("loaded", "true");
            found.put("log_start_offset", Long.toString(log.logStartOffset()));
            found.put("log_end_offset", Long.toString(log.logEndOffset()));
            found.put("last_stable_offset", Long.toString(log.lastStableOffset()));
            found.put("segments", segments(log));
            found.put("producers", producers(log));
            found.put("epochs", epochs(log.leaderEpochCache()));
            log.close();
            scheduler.run();
        } catch (Exception | StackOverflowError | OutOfMemoryError refused) {
            found.put("loaded", "false");
            found.put("exception", quoted(refused.getClass().getSimpleName()));
            found.put("message", quoted(String.valueOf(refused.getMessage())));
        }
        found.put("files", files(directory));
        return object(found);
    }

    private static String segments(UnifiedLog log) {
        List<String> rows = new ArrayList<>();
        for (LogSegment segment : log.logSegments())
            rows.add("[" + segment.baseOffset() + ", " + segment.size() + "]");
        return rows.toString();
    }

    private static String producers(UnifiedLog log) {
        List<String> rows = new ArrayList<>();
        for (ProducerStateEntry entry : new TreeMap<>(log.producerStateManager().activeProducers()).values())
            rows.add("[" + entry.producerId() + ", " + entry.producerEpoch() + ", " + entry.coordinatorEpoch() + ", "
                + entry.lastDataOffset() + ", " + entry.lastTimestamp() + ", " + entry.currentTxnFirstOffset().orElse(-1) + "]");
        return rows.toString();
    }

    private static String epochs(LeaderEpochFileCache cache) {
        List<String> rows = new ArrayList<>();
        cache.epochEntries().forEach(entry -> rows.add("[" + entry.epoch() + ", " + entry.startOffset() + "]"));
        return rows.toString();
    }

    private static String files(File directory) {
        Map<String, String> sizes = new TreeMap<>();
        File[] files = directory.listFiles();
        for (File file : files == null ? new File[0] : files)
            if (file.isFile())
                sizes.put(file.getName(), Long.toString(file.length()));
        return object(sizes);
    }

    private static String object(Map<String, String> fields) {
        StringBuilder text = new StringBuilder();
        fields.forEach((name, value) -> text.append(text.isEmpty() ? "{" : ", ").append(quoted(name)).append(": ").append(value));
        return text.isEmpty() ? "{}" : text + "}";
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char unit : text.toCharArray()) {
            if (unit < ' ' || unit > '~' || unit == '"' || unit == '\\')
                out.append(String.format("\\u%04x", (int) unit));
            else
                out.append(unit);
        }
        return out.append('"').toString();
    }
}
