import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.ByteUtils;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's own verdict on compressed data, for test_codec.py.
 *
 * Standard input is a sequence of requests, standard output one answer to each, in the same order. Integers are big-endian.
 *
 *   request  i32 id, u8 operation, u8 codec, i8 magic, i32 argument, i32 length, bytes
 *     'S'      decompress byte by byte up to the end of the stream; the argument is the most bytes to return
 *     'R'      decompress as the iterator of a magic 2 batch of so many records does
 *     'W'      compress as Kafka's writer does, so many bytes with each call of write (0: all with one)
 *     'V'      the version of Java
 *   answer   i32 id, u8 status, i32 length, bytes
 *            status 1: the result; 0: refused, the bytes are the exceptions; 2: more bytes than the argument allows
 */
public class Codecs {
    private static final String[] NAMES = {"none", "gzip", "snappy", "lz4", "zstd"};

    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int id;
            try {
                id = in.readInt();
            } catch (EOFException e) {
                break;
            }
            int operation = in.readUnsignedByte();
            int codec = in.readUnsignedByte();
            byte magic = in.readByte();
            int argument = in.readInt();
            byte[] data = in.readNBytes(in.readInt());
            ByteArrayOutputStream result = new ByteArrayOutputStream();
            int status = 1;
            try {
                switch (operation) {
                    case 'S' -> status = bytes(reader(codec, magic, data), argument, result);
                    case 'R' -> records(reader(codec, magic, data), argument, result);
                    case 'W' -> write(codec, magic, argument, data, result);
                    case 'V' -> result.writeBytes(System.getProperty("java.specification.version").getBytes(StandardCharsets.UTF_8));
                    default -> throw new AssertionError("no such operation: " + operation);
                }
            } catch (AssertionError e) {
                throw e;
            } catch (Throwable e) { // SnappyError and OutOfMemoryError are no exceptions
                status = 0;
                result.reset();
                for (Throwable cause = e; cause != null; cause = cause.getCause())
                    result.writeBytes((cause + "\n").getBytes(StandardCharsets.UTF_8));
            }
            out.writeInt(id);
            out.writeByte(status);
            out.writeInt(result.size());
            result.writeTo(out);
        }
        out.flush();
    }

    private static InputStream reader(int codec, byte magic, byte[] data) {
        // in a larger buffer, as the data of a batch lies in that of its segment
        ByteBuffer buffer = ByteBuffer.allocate(61 + data.length).position(61).put(data).position(61);
        return Compression.of(NAMES[codec]).build().wrapForInput(buffer, magic, BufferSupplier.NO_CACHING);
    }

    private static int bytes(InputStream stream, int limit, ByteArrayOutputStream result) throws IOException {
        try (stream) {
            for (int value = stream.read(); value != -1; value = stream.read()) {
                if (result.size() == limit)
                    return 2;
                result.write(value);
            }
        }
        return 1;
    }

    /** What DefaultRecordBatch.StreamRecordIterator and DefaultRecord.readFrom read, whatever the records hold. */
    private static void records(InputStream stream, int count, ByteArrayOutputStream result) throws IOException {
        try (stream) {
            for (int record = 0; record < count; record++) {
                int size = ByteUtils.readVarint(stream);
                ByteBuffer body = ByteBuffer.allocate(size);
                if (Utils.readFully(stream, body) != size)
                    throw new IOException("Invalid record size: the record payload reached EOF");
                result.writeBytes(ByteBuffer.allocate(4).putInt(size).array());
                result.writeBytes(body.array());
            }
            if (stream.read() != -1)
                throw new IOException("Incorrect declared batch size, records still remaining in file");
        }
    }

    private static void write(int codec, byte magic, int piece, byte[] data, ByteArrayOutputStream result) throws IOException {
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(512);
        try (OutputStream stream = Compression.of(NAMES[codec]).build().wrapForOutput(buffer, magic)) {
            int step = piece == 0 ? Math.max(1, data.length) : piece;
            for (int at = 0; at < data.length; at += step)
                stream.write(data, at, Math.min(step, data.length - at));
        }
        result.write(buffer.buffer().array(), 0, buffer.position());
    }
}
