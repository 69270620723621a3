import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * What consumers of any release from 0.9 on get. Arguments: bootstrap server, then for each consumer, with `then` between them, the isolation level
 * and `partition:start:end` for each partition, named as its directory is, and with the offsets to read from and to.
 *
 * A line for each record, `partition offset timestamp type key value headers`, fields as hexadecimal digits, `-` for null and `""` for empty,
 * headers as `name=value,name=value`; `- -` for a timestamp and its type where the release has none; then `partition end position`, and `then`.
 */
public class Consumed {
    private static final String BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    private static final long LIMIT_NS = 30_000_000_000L;

    public static void main(String[] args) throws Exception {
        int start = 1;
        for (int end = 2; end <= args.length; end++) {
            if (end == args.length || args[end].equals("then")) {
                System.out.print(consumed(args[0], args[start], Arrays.copyOfRange(args, start + 1, end)));
                System.out.println("then");
                start = end + 1;
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static StringBuilder consumed(String bootstrap, String isolation, String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("check.crcs", "true");
        settings.put("fetch.max.wait.ms", "20");
        settings.put("key.deserializer", BYTES);
        settings.put("value.deserializer", BYTES);
        List<TopicPartition> partitions = new ArrayList<>();
        List<Long> starts = new ArrayList<>();
        List<Long> ends = new ArrayList<>();
        for (String argument : arguments) {
            String[] parts = argument.split(":");
            int dash = parts[0].lastIndexOf('-');
            partitions.add(new TopicPartition(parts[0].substring(0, dash), Integer.parseInt(parts[0].substring(dash + 1))));
            starts.add(Long.parseLong(parts[1]));
            ends.add(Long.parseLong(parts[2]));
        }
        StringBuilder out = new StringBuilder();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            for (int i = 0; i < partitions.size(); i++) {
                consumer.seek(partitions.get(i), starts.get(i));
            }
            long limit = System.nanoTime() + LIMIT_NS;
            while (behind(consumer, partitions, ends) && System.nanoTime() < limit) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    out.append(record.topic() + "-" + record.partition() + " " + record.offset() + " " + time(record) + " " + hex(record.key())
                        + " " + hex(record.value()) + " " + headers(record) + "\n");
                }
            }
            for (TopicPartition partition : partitions) {
                out.append(partition + " end " + consumer.position(partition) + "\n");
            }
        }
        return out;
    }

    private static boolean behind(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions, List<Long> ends) {
        for (int i = 0; i < partitions.size(); i++) {
            if (consumer.position(partitions.get(i)) < ends.get(i)) {
                return true;
            }
        }
        return false;
    }

    /** Releases before 2.0 have the one, releases since 4.0 only the other. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws ReflectiveOperationException {
        Object found = method(KafkaConsumer.class, "poll", Duration.class) == null
            ? KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 500L)
            : KafkaConsumer.class.getMethod("poll", Duration.class).invoke(consumer, Duration.ofMillis(500));
        return (ConsumerRecords<byte[], byte[]>) found;
    }

    private static String time(ConsumerRecord<byte[], byte[]> record) throws ReflectiveOperationException {
        return method(ConsumerRecord.class, "timestamp") == null ? "- -" : get(record, "timestamp") + " " + get(record, "timestampType");
    }

    private static String headers(ConsumerRecord<byte[], byte[]> record) throws ReflectiveOperationException {
        if (method(ConsumerRecord.class, "headers") == null) {
            return "";
        }
        List<String> found = new ArrayList<>();
        for (Object header : (Iterable<?>) get(record, "headers")) {
            Class<?> type = Class.forName("org.apache.kafka.common.header.Header");
            String key = (String) type.getMethod("key").invoke(header);
            found.add(hex(key.getBytes(StandardCharsets.UTF_8)) + "=" + hex((byte[]) type.getMethod("value").invoke(header)));
        }
        return String.join(",", found);
    }

    private static Object get(ConsumerRecord<byte[], byte[]> record, String name) throws IllegalAccessException, NoSuchMethodException, InvocationTargetException {
        return ConsumerRecord.class.getMethod(name).invoke(record);
    }

    private static Method method(Class<?> type, String name, Class<?>... parameters) {
        try {
            return type.getMethod(name, parameters);
        } catch (NoSuchMethodException older) {
            return null;
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : bytes.length == 0 ? "\"\"" : HexFormat.of().formatHex(bytes);
    }
}
