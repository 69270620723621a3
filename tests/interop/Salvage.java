import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;

/**
 * Writes transactions, reads them, ends one. Arguments: bootstrap server, then
 * `write` and per topic `topic:<producer><C or A><batches> …`, each of which is one transaction; or
 * `read` isolation level and topics: a line `topic offset value` for each record; or
 * `abort` topic and start offset.
 */
public class Salvage {
    private static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        switch (args[1]) {
            case "write" -> {
                for (int i = 2; i < args.length; i++) {
                    write(args[i].split(":")[0], args[i].split(":")[1].split(" "));
                }
            }
            case "read" -> {
                for (int i = 3; i < args.length; i++) {
                    read(args[2], args[i]);
                }
            }
            default -> abort(args[2], Long.parseLong(args[3]));
        }
    }

    private static void write(String topic, String[] transactions) throws Exception {
        Map<Character, KafkaProducer<byte[], byte[]>> producers = new java.util.HashMap<>();
        for (String one : transactions) {
            KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(one.charAt(0), name -> producer(topic + name));
            boolean commits = one.charAt(1) == 'C';
            producer.beginTransaction();
            for (int i = 0; i < Integer.parseInt(one.substring(2)); i++) {
                for (int record = 0; record < 3; record++) {
                    String text = (commits ? "committed" : "aborted") + " by " + one.charAt(0) + " " + i + " " + record;
                    producer.send(new ProducerRecord<>(topic, 0, null, text.getBytes(StandardCharsets.UTF_8)));
                }
                producer.flush();
            }
            if (commits) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private static KafkaProducer<byte[], byte[]> producer(String id) {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "linger.ms", "60000", "transactional.id", id),
            new ByteArraySerializer(),
            new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    private static void read(String isolation, String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        IsolationLevel level = isolation.equals("read_committed") ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
        long end;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            end = admin.listOffsets(Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(level)).partitionResult(partition).get().offset();
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            long limit = System.nanoTime() + 30_000_000_000L;
            while (consumer.position(partition) < end && System.nanoTime() < limit) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(topic + " " + record.offset() + " " + new String(record.value(), StandardCharsets.UTF_8));
                }
            }
            System.out.println(topic + " end " + consumer.position(partition) + " of " + end);
        }
    }

    private static void abort(String topic, long start) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (ProducerState one : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
                if (one.currentTransactionStartOffset().orElse(-1) == start) {
                    short epoch = (short) one.producerEpoch();
                    int coordinator = Math.max(one.coordinatorEpoch().orElse(-1), 0);
                    admin.abortTransaction(new AbortTransactionSpec(partition, one.producerId(), epoch, coordinator)).all().get();
                    System.out.println("aborted");
                }
            }
        }
    }
}
