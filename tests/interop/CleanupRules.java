import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What a broker's own classes would compact of a log, and what they delete, after a clean start. Standard input: a line each, its words
 * separated by tabs: partition directory, log start offset, high watermark (-1 for the log end offset), clock in ms, settings as
 * `name=value;name=value`. The cleaner's checkpoint is read from the parent directory. Standard output: a line of JSON each. The directories are
 * changed as a broker would change them.
 */
public class CleanupRules {
    private static final int DAY_MS = 86_400_000;
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);
    private static final ProducerStateManagerConfig PRODUCERS = new ProducerStateManagerConfig(DAY_MS, false);

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> found = new TreeMap<>();
            try {
                examine(line.split("\t", -1), found);
            } catch (Exception refused) {
                found.put("refused", refused.toString());
            }
            System.out.println(found.entrySet().stream()
                .map(entry -> "\"" + entry.getKey() + "\": " + json(entry.getValue()))
                .collect(Collectors.joining(", ", "{", "}")));
        }
        System.out.flush();
        System.exit(0);
    }

    private static String json(Object value) {
        return value instanceof String text ? "\"" + text.replace("\\", "\\\\").replace("\"", "'") + "\"" : value.toString();
    }

    private static void examine(String[] words, Map<String, Object> found) throws Exception {
        long now = Long.parseLong(words[3]);
        UnifiedLog log = open(new File(words[0]), Long.parseLong(words[1]), now, settings(words[4]));
        long highWatermark = Long.parseLong(words[2]);
        log.updateHighWatermark(highWatermark < 0 ? log.logEndOffset() : highWatermark);
        found.put("log_start_offset", log.logStartOffset());
        found.put("log_end_offset", log.logEndOffset());
        found.put("high_watermark", log.highWatermark());
        found.put("last_stable_offset", log.lastStableOffset());
        compaction(log, now, found);
        List<Long> before = bases(log);
        found.put("segments", before);
        log.deleteOldSegments();
        List<Long> after = bases(log);
        found.put("deleted", before.stream().filter(base -> !after.contains(base)).toList());
        found.put("rolled", after.stream().anyMatch(base -> !before.contains(base)));
        found.put("log_start_offset_after", log.logStartOffset());
    }

    private static void compaction(UnifiedLog log, long now, Map<String, Object> found) throws Exception {
        File directory = log.parentDirFile();
        ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(log.topicPartition(), log));
        LogCleanerManager manager = new LogCleanerManager(List.of(directory), logs, new LogDirFailureChannel(1));
        try {
            Optional<Long> checkpoint = Optional.ofNullable(manager.allCleanerCheckpoints().get(log.topicPartition()));
            Object range = method("cleanableOffsets", UnifiedLog.class, Optional.class, long.class).invoke(null, log, checkpoint, now);
            long dirty = number(range, "firstDirtyOffset");
            long bound = number(range, "firstUncleanableDirtyOffset");
            LogToClean whole = new LogToClean(log, dirty, bound, false);
            found.put("first_dirty_offset", dirty);
            found.put("bound", bound);
            found.put("first_uncleanable_offset", whole.firstUncleanableOffset());
            found.put("clean_bytes", whole.cleanBytes());
            found.put("cleanable_bytes", whole.cleanableBytes());
            found.put("lag_ms", delay(log, dirty, now));
            found.put("starts", manager.grabFilthiestCompactedLog(new Standing(now), new PreCleanStats()).isPresent());
        } catch (RuntimeException failed) {
            found.put("failed", failed.toString());
        } finally {
            manager.removeMetrics();
        }
    }

    private static long delay(UnifiedLog log, long dirty, long now) throws Exception {
        try {
            return (long) method("maxCompactionDelay", UnifiedLog.class, long.class, long.class).invoke(null, log, dirty, now);
        } catch (InvocationTargetException thrown) {
            throw (Exception) thrown.getCause();
        }
    }

    private static Method method(String name, Class<?>... parameters) throws Exception {
        Method method = LogCleanerManager.class.getDeclaredMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }

    private static long number(Object record, String name) throws Exception {
        Method method = record.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (long) method.invoke(record);
    }

    private static List<Long> bases(UnifiedLog log) {
        return log.logSegments().stream().map(LogSegment::baseOffset).toList();
    }

    private static Map<String, String> settings(String text) {
        Map<String, String> found = new HashMap<>();
        for (String setting : text.split(";")) {
            String[] pair = setting.split("=", 2);
            if (pair.length == 2)
                found.put(pair[0], pair[1]);
        }
        return found;
    }

    private static UnifiedLog open(File directory, long start, long now, Map<String, String> settings) throws IOException {
        ClassLoader loader = CleanupRules.class.getClassLoader();
        ScheduledFuture<?> never = (ScheduledFuture<?>) Proxy.newProxyInstance(loader, new Class<?>[] {ScheduledFuture.class},
            (self, method, arguments) -> method.getReturnType() == boolean.class ? true : null);
        InvocationHandler drops = (self, method, arguments) -> method.isDefault()
            ? InvocationHandler.invokeDefault(self, method, arguments)
            : method.getReturnType() == ScheduledFuture.class ? never : null;
        Scheduler scheduler = (Scheduler) Proxy.newProxyInstance(loader, new Class<?>[] {Scheduler.class}, drops);
        return UnifiedLog.create(directory, new LogConfig(settings), start, 0, scheduler, STATS, new Standing(now), 900_000, PRODUCERS, 600_000,
            new LogDirFailureChannel(1), true, Optional.empty(), new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

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
}
