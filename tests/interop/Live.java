import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes until it is killed: transactions over the two partitions of `transfers` with offsets of a group in them, keys
 * over and over to `compacted`, plain batches to `retained`, and records deleted from the front of `trimmed`. Prints a
 * line a round. Argument: bootstrap server.
 */
public class Live {
    private static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        KafkaProducer<byte[], byte[]> one = producer("one", "none");
        KafkaProducer<byte[], byte[]> two = producer("two", "zstd");
        KafkaProducer<byte[], byte[]> plain = producer(null, "lz4");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (int round = 0; ; round++) {
                one.beginTransaction();
                for (int i = 0; i < 4; i++) {
                    batch(one, "transfers", i % 2, 3, round);
                    two.beginTransaction();
                    batch(two, "transfers", 0, 2 + i, round);
                    batch(two, "transfers", 1, 2, round);
                    batch(two, "compacted", 0, 10, round);
                    two.sendOffsetsToTransaction(
                        Map.of(new TopicPartition("retained", 0), new OffsetAndMetadata(round)),
                        new ConsumerGroupMetadata("group"));
                    if (i % 2 == 0) {
                        two.commitTransaction();
                    } else {
                        two.abortTransaction();
                    }
                    batch(plain, "retained", 0, 20, round);
                    batch(plain, "compacted", 0, 40, round);
                }
                if (round % 3 == 0) {
                    one.abortTransaction();
                } else {
                    one.commitTransaction();
                }
                long last = batch(plain, "trimmed", 0, 10, round);
                admin.deleteRecords(Map.of(
                    new TopicPartition("trimmed", 0), RecordsToDelete.beforeOffset(Math.max(0, last - 15))))
                    .all().get();
                System.out.println("round " + round);
                Thread.sleep(20);
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String transactionalId, String codec) {
        Map<String, Object> settings = new HashMap<>(
            Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", "60000"));
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (transactionalId != null) {
            producer.initTransactions();
        }
        return producer;
    }

    /** The offset of the last record. */
    private static long batch(KafkaProducer<byte[], byte[]> producer, String topic, int partition, int count, int round)
        throws Exception {
        Future<RecordMetadata> sent = null;
        for (int i = 0; i < count; i++) {
            byte[] key = ("key-" + (i * 7 + round) % 60).getBytes(StandardCharsets.UTF_8);
            byte[] value = ("round " + round + " " + Long.toHexString((round * 31L + i) * 0x9E3779B97F4A7C15L).repeat(6))
                .getBytes(StandardCharsets.UTF_8);
            sent = producer.send(new ProducerRecord<>(topic, partition, key, i % 9 == 8 ? null : value));
        }
        producer.flush();
        return sent.get().offset();
    }
}
