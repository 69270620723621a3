import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes, reads, ends transactions. Arguments: bootstrap server, then commands, with `then` between them, or `-`: the
 * commands are then the lines of standard input. A partition is named as its directory is, and records of a topic
 * `compacted` have keys.
 *
 * `write` and per partition `partition:<producer><kind><batches> …`: each is a transaction, Committed, Aborted or left Open,
 * or batches of an Idempotent or a Plain producer; a producer is one of its topic, and what it leaves open goes on in the next;
 * `read` isolation level and partitions: a line `partition offset value` for each record, and `partition end position of end`;
 * `open` and partitions: a line `partition offset` for each transaction that has no end, by its first offset;
 * `abort` partition and first offset: a line `aborted`;
 * `put` partition and records, `key=value` or, for a tombstone, `key`, each in a batch of its own;
 * `in` partition, a producer of its topic, what becomes of its transaction (C, A or O), and records as for `put`;
 * `served` isolation level and partitions: a line `partition offset key=value` for each record, tombstones without `=`;
 * `lead` partition and its replicas, of which the first one leads then;
 * `set` and settings `name=value` of all brokers.
 *
 * Behind what a command prints stands a line `then`.
 */
public class Client {
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static final Set<String> OPEN = new HashSet<>();
    private static final Map<Character, String> KINDS =
        Map.of('C', "committed", 'A', "aborted", 'O', "open", 'I', "idempotent", 'P', "plain");
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        if (args[1].equals("-")) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                run(words[0], List.of(words).subList(1, words.length));
                System.out.println("then");
                System.out.flush();
            }
            Runtime.getRuntime().halt(0);
        }
        int start = 1;
        for (int end = 1; end <= args.length; end++) {
            if (end == args.length || args[end].equals("then")) {
                run(args[start], List.of(Arrays.copyOfRange(args, start + 1, end)));
                System.out.println("then");
                start = end + 1;
            }
        }
        System.out.flush();
        // A producer that is closed aborts what it has open.
        Runtime.getRuntime().halt(0);
    }

    private static void run(String command, List<String> arguments) throws Exception {
        switch (command) {
            case "write" -> {
                for (String argument : arguments) {
                    String[] parts = argument.split(":");
                    write(partition(parts[0]), parts[1].split(" "));
                }
                ended(arguments.stream().filter(one -> !one.contains("O")).map(one -> partition(one.split(":")[0])).toList());
            }
            case "read", "served" -> read(
                arguments.get(0), arguments.stream().skip(1).map(Client::partition).toList(), command.equals("served"));
            case "open" -> {
                for (var found : producers(arguments.stream().map(Client::partition).toList()).entrySet()) {
                    for (ProducerState one : found.getValue()) {
                        one.currentTransactionStartOffset().ifPresent(
                            offset -> System.out.println(found.getKey() + " " + offset));
                    }
                }
            }
            case "put" -> {
                var producer = PRODUCERS.computeIfAbsent(
                    partition(arguments.get(0)).topic() + 'I', name -> producer(name, 'I', false));
                put(producer, partition(arguments.get(0)), arguments.subList(1, arguments.size()));
            }
            case "in" -> transact(
                partition(arguments.get(0)), arguments.get(1), arguments.get(2).charAt(0),
                arguments.subList(3, arguments.size()));
            case "lead" -> lead(partition(arguments.get(0)), arguments.stream().skip(1).map(Integer::valueOf).toList());
            case "set" -> {
                var changed = arguments.stream().map(each -> each.split("=", 2)).map(each ->
                    new AlterConfigOp(new ConfigEntry(each[0], each[1]), AlterConfigOp.OpType.SET)).toList();
                var brokers = new ConfigResource(ConfigResource.Type.BROKER, "");
                admin.incrementalAlterConfigs(Map.of(brokers, changed)).all().get();
            }
            case "delete" -> admin.deleteTopics(arguments).all().get();
            default -> abort(partition(arguments.get(0)), Long.parseLong(arguments.get(1)));
        }
    }

    private static void transact(TopicPartition to, String name, char kind, List<String> records) throws Exception {
        String id = to.topic() + name;
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.computeIfAbsent(id, one -> producer(one, kind, true));
        if (OPEN.add(id)) {
            producer.beginTransaction();
        }
        put(producer, to, records);
        if (kind == 'C') {
            producer.commitTransaction();
        } else if (kind == 'A') {
            producer.abortTransaction();
        }
        if (kind != 'O') {
            OPEN.remove(id);
        }
    }

    private static void put(KafkaProducer<byte[], byte[]> producer, TopicPartition to, List<String> records)
        throws Exception {
        for (String record : records) {
            String[] parts = record.split("=", 2);
            byte[] value = parts.length > 1 ? bytes(parts[1]) : null;
            Future<RecordMetadata> sent =
                producer.send(new ProducerRecord<>(to.topic(), to.partition(), bytes(parts[0]), value));
            producer.flush();
            sent.get();
        }
    }

    private static void lead(TopicPartition partition, List<Integer> replicas) throws Exception {
        admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
        long limit = System.nanoTime() + 60_000_000_000L;
        while (leader(partition) != replicas.get(0) && System.nanoTime() < limit) {
            admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
            Thread.sleep(200);
        }
    }

    private static int leader(TopicPartition partition) throws Exception {
        return admin.describeTopics(List.of(partition.topic())).allTopicNames().get().get(partition.topic())
            .partitions().get(partition.partition()).leader().id();
    }

    private static TopicPartition partition(String name) {
        int dash = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void write(TopicPartition to, String[] steps) throws Exception {
        for (String step : steps) {
            char kind = step.charAt(1);
            boolean transactional = kind == 'C' || kind == 'A' || kind == 'O';
            String id = to.topic() + step.charAt(0);
            KafkaProducer<byte[], byte[]> producer =
                PRODUCERS.computeIfAbsent(transactional ? id : id + kind, name -> producer(id, kind, transactional));
            if (transactional && OPEN.add(id)) {
                producer.beginTransaction();
            }
            Future<RecordMetadata> sent = null;
            for (int i = 0; i < Integer.parseInt(step.substring(2)); i++) {
                for (int record = 0; record < 3; record++) {
                    byte[] key = to.topic().equals("compacted") ? bytes("key " + (i + 2 * record) % 7) : null;
                    byte[] value = bytes(KINDS.get(kind) + " by " + step.charAt(0) + " " + i + " " + record);
                    sent = producer.send(new ProducerRecord<>(to.topic(), to.partition(), key, value));
                }
                producer.flush();
            }
            if (sent != null) {
                sent.get();
            }
            if (kind == 'C') {
                producer.commitTransaction();
            } else if (kind == 'A') {
                producer.abortTransaction();
            }
            if (kind != 'O') {
                OPEN.remove(id);
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String id, char kind, boolean transactional) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", "60000"));
        if (transactional) {
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", "900000");
        } else {
            settings.put("enable.idempotence", String.valueOf(kind == 'I'));
        }
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (transactional) {
            producer.initTransactions();
        }
        return producer;
    }

    private static void read(String isolation, List<TopicPartition> partitions, boolean keys) throws Exception {
        IsolationLevel level = isolation.equals("read_committed") ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
        Map<TopicPartition, OffsetSpec> latest =
            partitions.stream().collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()));
        Map<TopicPartition, Long> ends = new HashMap<>();
        admin.listOffsets(latest, new ListOffsetsOptions(level)).all().get()
            .forEach((partition, found) -> ends.put(partition, found.offset()));
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long limit = System.nanoTime() + 90_000_000_000L;
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one)) && System.nanoTime() < limit) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    String value = record.value() == null ? "null" : new String(record.value(), StandardCharsets.UTF_8);
                    if (keys) {
                        String key = record.key() == null ? "" : new String(record.key(), StandardCharsets.UTF_8);
                        value = record.value() == null ? key : key + "=" + value;
                    }
                    System.out.println(record.topic() + "-" + record.partition() + " " + record.offset() + " " + value);
                }
            }
            for (TopicPartition one : partitions) {
                System.out.println(one + " end " + consumer.position(one) + " of " + ends.get(one));
            }
        }
    }

    private static Map<TopicPartition, List<ProducerState>> producers(List<TopicPartition> partitions) throws Exception {
        Map<TopicPartition, List<ProducerState>> found = new HashMap<>();
        admin.describeProducers(partitions).all().get()
            .forEach((partition, state) -> found.put(partition, state.activeProducers()));
        return found;
    }

    /** Waits for the markers of transactions: one counts as committed or aborted before they are written. */
    private static void ended(List<TopicPartition> partitions) throws Exception {
        long limit = System.nanoTime() + 60_000_000_000L;
        while (System.nanoTime() < limit && producers(partitions).values().stream().flatMap(List::stream)
            .anyMatch(one -> one.currentTransactionStartOffset().isPresent())) {
            Thread.sleep(20);
        }
    }

    private static void abort(TopicPartition partition, long start) throws Exception {
        for (ProducerState one : producers(List.of(partition)).get(partition)) {
            if (one.currentTransactionStartOffset().orElse(-1) == start) {
                short epoch = (short) one.producerEpoch();
                int coordinator = Math.max(one.coordinatorEpoch().orElse(-1), 0);
                admin.abortTransaction(new AbortTransactionSpec(partition, one.producerId(), epoch, coordinator)).all().get();
                System.out.println("aborted");
            }
        }
    }
}
