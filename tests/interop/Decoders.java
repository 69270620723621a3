import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;

/**
 * What the decoders of Kafka's dump tool make of records. Standard input: lines `PARSER OFFSET KEY VALUE`, key and value
 * in base64, `-` for null; standard output: for each line `KEY PAYLOAD`, the texts in base64, `-` where the tool shows
 * none, `! MESSAGE` where it throws. Lines `message CLASS VERSION BYTES`: the message as JSON and as bytes.
 */
public class Decoders {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        Map<String, Object> parsers = new HashMap<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", -1);
            if (parts[0].equals("message")) {
                output.println(message(parts[1], Short.parseShort(parts[2]), bytes(parts[3])));
                continue;
            }
            Object parser = parsers.computeIfAbsent(parts[0], Decoders::parser);
            Record record = MemoryRecords.withRecords((byte) 2, Long.parseLong(parts[1]), Compression.NONE,
                new SimpleRecord(0L, bytes(parts[2]), bytes(parts[3]))).records().iterator().next();
            String found;
            try {
                Method parse = parser.getClass().getMethod("parse", Record.class);
                parse.setAccessible(true);
                Object result = parse.invoke(parser, record);
                found = field(result, "key") + " " + field(result, "value");
            } catch (java.lang.reflect.InvocationTargetException thrown) {
                found = "! " + text(String.valueOf(thrown.getCause().getMessage()));
            }
            output.println(found);
        }
        output.flush();
    }

    private static String message(String name, short version, byte[] data) throws ReflectiveOperationException {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(ByteBuffer.wrap(data)), version);
        Object json = Class.forName(name + "JsonConverter").getMethod("write", type, short.class).invoke(null, message, version);
        byte[] written = MessageUtil.toVersionPrefixedBytes(version, message);
        return text(json.toString()) + " " + Base64.getEncoder().encodeToString(Arrays.copyOfRange(written, 2, written.length));
    }

    private static Object parser(String name) {
        try {
            Constructor<?> made = Class.forName("org.apache.kafka.tools.DumpLogSegments$" + name).getDeclaredConstructor();
            made.setAccessible(true);
            return made.newInstance();
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(name, error);
        }
    }

    private static String field(Object result, String name) throws ReflectiveOperationException {
        java.lang.reflect.Field field = result.getClass().getDeclaredField(name);
        field.setAccessible(true);
        Optional<?> found = (Optional<?>) field.get(result);
        return found.map(value -> text(value.toString())).orElse("-");
    }

    private static String text(String value) {
        return "=" + Base64.getEncoder().encodeToString(value.getBytes(StandardCharsets.UTF_8));
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }
}
