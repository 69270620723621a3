import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

/**
 * What Kafka makes of keys and values of `__transaction_state`. Standard input: lines `key|value BLANK base64`; standard
 * output: a line each, `unknown` for a version that is not, `refused` where the reader throws. Text comes as hexadecimal
 * UTF-16.
 */
public class TransactionStates {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", -1);
            ByteBuffer data = ByteBuffer.wrap(Base64.getDecoder().decode(parts[1]));
            String found;
            try {
                found = parts[0].equals("key") ? key(data) : value(data);
            } catch (RuntimeException refused) {
                found = "refused";
            }
            output.println(found);
        }
        output.flush();
    }

    private static String key(ByteBuffer data) {
        if (data.getShort() != new TransactionLogKey().apiKey())
            return "unknown";
        return hex(new TransactionLogKey(new ByteBufferAccessor(data), (short) 0).transactionalId());
    }

    private static String value(ByteBuffer data) {
        short version = data.getShort();
        if (version < TransactionLogValue.LOWEST_SUPPORTED_VERSION || version > TransactionLogValue.HIGHEST_SUPPORTED_VERSION)
            return "unknown";
        TransactionLogValue value = new TransactionLogValue(new ByteBufferAccessor(data), version);
        StringBuilder partitions = new StringBuilder();
        if (value.transactionPartitions() == null)
            partitions.append("null");
        else
            value.transactionPartitions().forEach(topic ->
                partitions.append(hex(topic.topic())).append(topic.partitionIds().toString().replace(" ", "")));
        return version + " " + value.producerId() + " " + value.previousProducerId() + " " + value.nextProducerId()
            + " " + value.producerEpoch() + " " + value.nextProducerEpoch() + " " + value.transactionTimeoutMs()
            + " " + value.transactionStatus() + " " + partitions + " " + value.transactionLastUpdateTimestampMs()
            + " " + value.transactionStartTimestampMs() + " " + value.clientTransactionVersion();
    }

    private static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (char unit : text.toCharArray())
            digits.append(String.format("%04x", (int) unit));
        return digits.toString();
    }
}
