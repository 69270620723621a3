import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.Future;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends the records on standard input to the broker that the argument names, and prints their offsets. A line is a topic,
 * key, value, and the name and value of each header, with blanks between them; bytes are base64, a dash is null.
 */
public class Sent {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings); Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String[] parts = lines.nextLine().split(" ");
                var record = new ProducerRecord<>(parts[0], 0, bytes(parts[1]), bytes(parts[2]));
                for (int at = 3; at < parts.length; at += 2) {
                    record.headers().add(parts[at], bytes(parts[at + 1]));
                }
                sent.add(producer.send(record));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            System.out.println(one.get().topic() + " " + one.get().offset());
        }
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }
}
