import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills topics, and asks a running broker for its numbers. Arguments: bootstrap server and
 *
 * `fill` and per topic `name:codec:<idempotence, true or false>[:<offset, of records to delete before>]`: 40 batches of five records to each partition,
 * seven keys, every fifth value is null; without idempotence the timestamps are in no order;
 * `ask` and topics: lines `partition name number`, and `partition producer id epoch sequence timestamp start` for each producer, with `-1` for what it has not,
 * and `transaction state`. It waits until no transaction is between its end and its markers.
 */
public class BrokerNumbers {
    private static final long HOUR_MS = 3_600_000, LIMIT_NS = 20_000_000_000L;
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        List<String> arguments = Arrays.asList(args).subList(2, args.length);
        if (args[1].equals("fill")) {
            for (String argument : arguments)
                fill(argument.split(":"));
        } else {
            ended();
            ask(partitions(arguments));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static List<TopicPartition> partitions(List<String> topics) throws Exception {
        List<TopicPartition> found = new ArrayList<>();
        admin.describeTopics(topics).allTopicNames().get().forEach((topic, described) ->
            described.partitions().forEach(one -> found.add(new TopicPartition(topic, one.partition()))));
        return found;
    }

    private static void fill(String[] parts) throws Exception {
        long now = System.currentTimeMillis();
        List<TopicPartition> partitions = partitions(List.of(parts[0]));
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", "60000",
            "compression.type", parts[1], "enable.idempotence", parts[2]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int batch = 0; batch < 40; batch++) {
                for (TopicPartition to : partitions) {
                    for (int i = batch * 5; i < batch * 5 + 5; i++) {
                        byte[] value = ("value " + i + " " + "abcdefgh".repeat(i % 9)).getBytes(StandardCharsets.UTF_8);
                        long timestamp = now - 2 * HOUR_MS + (parts[2].equals("true") ? i : i * 61 % 199) * 1000L;
                        producer.send(new ProducerRecord<>(to.topic(), to.partition(), timestamp,
                            ("key " + i % 7).getBytes(StandardCharsets.UTF_8), i % 5 == 4 ? null : value));
                    }
                }
                producer.flush();
            }
        }
        if (parts.length > 3) {
            RecordsToDelete before = RecordsToDelete.beforeOffset(Long.parseLong(parts[3]));
            admin.deleteRecords(partitions.stream().collect(Collectors.toMap(one -> one, one -> before))).all().get();
        }
    }

    /** Waits for the markers: a transaction counts as ended before they are written. */
    private static void ended() throws Exception {
        long limit = System.nanoTime() + LIMIT_NS;
        List<TransactionState> known;
        do {
            Thread.sleep(20);
            known = admin.listTransactions().all().get().stream().map(one -> one.state()).toList();
        } while (System.nanoTime() < limit
            && (known.contains(TransactionState.PREPARE_COMMIT) || known.contains(TransactionState.PREPARE_ABORT)));
        known.forEach(state -> System.out.println("transaction " + state));
    }

    private static void ask(List<TopicPartition> partitions) throws Exception {
        offsets("earliest", partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED, ListOffsetsResultInfo::offset);
        offsets("max_timestamp", partitions, OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED, ListOffsetsResultInfo::timestamp);
        Map<TopicPartition, Long> latest =
            offsets("latest", partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, ListOffsetsResultInfo::offset);
        Map<TopicPartition, Long> stable =
            offsets("stable", partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED, ListOffsetsResultInfo::offset);
        count("read_uncommitted", latest, stable);
        count("read_committed", stable, stable);
        admin.describeProducers(partitions).all().get().forEach((partition, state) -> state.activeProducers().forEach(one ->
            System.out.println(partition + " producer " + one.producerId() + " " + one.producerEpoch() + " " + one.lastSequence()
                + " " + one.lastTimestamp() + " " + one.currentTransactionStartOffset().orElse(-1))));
        admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().forEach(directory ->
            directory.replicaInfos().forEach((partition, replica) -> System.out.println(partition + " size " + replica.size())));
    }

    private static Map<TopicPartition, Long> offsets(String name, List<TopicPartition> partitions, OffsetSpec spec, IsolationLevel level,
        ToLongFunction<ListOffsetsResultInfo> what) throws Exception {
        Map<TopicPartition, Long> found = new HashMap<>();
        Map<TopicPartition, OffsetSpec> asked = partitions.stream().collect(Collectors.toMap(one -> one, one -> spec));
        admin.listOffsets(asked, new ListOffsetsOptions(level)).all().get().forEach((partition, info) -> {
            found.put(partition, what.applyAsLong(info));
            System.out.println(partition + " " + name + " " + what.applyAsLong(info));
        });
        return found;
    }

    /** The records that a consumer gets, those from the last stable offset on, their null values, and the bytes of keys and values. */
    private static void count(String isolation, Map<TopicPartition, Long> ends, Map<TopicPartition, Long> stable) throws Exception {
        Map<String, Long> counts = new HashMap<>();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "fetch.max.wait.ms", "20");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(ends.keySet());
            consumer.seekToBeginning(ends.keySet());
            long limit = System.nanoTime() + LIMIT_NS;
            while (ends.entrySet().stream().anyMatch(one -> consumer.position(one.getKey()) < one.getValue()) && System.nanoTime() < limit) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    counts.merge(partition + " " + isolation, 1L, Long::sum);
                    counts.merge(partition + " " + isolation + "_from_stable", record.offset() >= stable.get(partition) ? 1L : 0L, Long::sum);
                    counts.merge(partition + " " + isolation + "_null_values", record.value() == null ? 1L : 0L, Long::sum);
                    counts.merge(partition + " " + isolation + "_key_bytes", (long) Math.max(record.serializedKeySize(), 0), Long::sum);
                    counts.merge(partition + " " + isolation + "_value_bytes", (long) Math.max(record.serializedValueSize(), 0), Long::sum);
                }
            }
            ends.forEach((partition, end) -> System.out.println(partition + " " + isolation + "_missing " + (end - consumer.position(partition))));
        }
        counts.forEach((name, number) -> System.out.println(name + " " + number));
    }
}
