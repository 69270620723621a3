import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Scanner;
import java.util.UUID;

import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Schema;

/** Prints the GUID of each schema on standard input: JSON in lines, with the hash of Confluent's class. */
public class SchemaGuids {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);
        try (Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8)) {
            while (lines.hasNextLine()) {
                MessageDigest digest = MessageDigest.getInstance("MD5");
                mapper.readValue(lines.nextLine(), Schema.class).updateHash(digest);
                ByteBuffer hash = ByteBuffer.wrap(digest.digest());
                System.out.println(new UUID(hash.getLong(), hash.getLong()));
            }
        }
    }
}
