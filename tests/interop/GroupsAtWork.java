import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Members that stay, and a transaction with offsets that stays open. Arguments: bootstrap server, topic. */
public class GroupsAtWork {
    public static void main(String[] args) throws Exception {
        Map<String, Object> common = Map.of("bootstrap.servers", args[0]);
        TopicPartition first = new TopicPartition(args[1], 0);
        KafkaConsumer<String, String> classic = consumer(common, "live-classic", "classic");
        KafkaConsumer<String, String> modern = consumer(common, "live-modern", "consumer");
        for (KafkaConsumer<String, String> each : List.of(classic, modern)) {
            each.subscribe(List.of(args[1]));
            long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (each.poll(Duration.ofMillis(200)).isEmpty()) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException("nothing to read");
                }
            }
            each.commitSync(Map.of(first, new OffsetAndMetadata(2)));
        }
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("transactional.id", "stays-open");
        settings.put("transaction.timeout.ms", "600000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        for (long offset = 1; offset <= 2; offset++) {
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                Map.of(first, new OffsetAndMetadata(offset)), new ConsumerGroupMetadata("open"));
            if (offset == 1) {
                producer.commitTransaction();
            }
        }
        System.out.println("ready");
        System.out.flush();
        while (true) {
            classic.poll(Duration.ofMillis(200));
            modern.poll(Duration.ofMillis(200));
        }
    }

    private static KafkaConsumer<String, String> consumer(Map<String, Object> common, String group, String protocol) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("group.id", group);
        settings.put("client.id", "client-of-" + group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
