import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * What MemoryRecordsBuilder makes of records, and what Kafka's readers make of batches, for test_builder.py.
 *
 * Standard input is a sequence of requests, standard output one answer to each. Integers are big-endian; a `field` is an i32
 * length, -1 for null, and so many bytes.
 *
 *   'B'  u8 magic, u8 codec, u8 has level, i32 level, u8 log append time, i64 it, i64 base offset, i64 producer id, i16 epoch,
 *        i32 sequence, u8 transactional, u8 control, i32 leader epoch, i64 delete horizon (-1: none), i32 records, each
 *        u8 has offset, i64 offset, i64 timestamp, field key, field value, i32 headers, each field key, field value
 *   'M'  u8 commit, i64 offset, i64 timestamp, i32 leader epoch, i64 producer id, i16 epoch, i32 coordinator epoch
 *   'R'  field: batches. The answer has for each record i64 offset, i64 timestamp, i32 sequence, u8 magic, field key, field
 *        value, i32 headers, each field key, field value
 *   answer  u8 status (1 done, 0 refused), field: the bytes, or what was thrown
 */
public class BatchBuilder {
    private static final String[] NAMES = {"none", "gzip", "snappy", "lz4", "zstd"};

    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int operation;
            try {
                operation = in.readUnsignedByte();
            } catch (EOFException e) {
                break;
            }
            int status = 1;
            byte[] answer;
            // A request is read to its end before anything of it is refused.
            try {
                answer = switch (operation) {
                    case 'B' -> new Batch(in).build();
                    case 'M' -> marker(in);
                    case 'R' -> read(field(in));
                    default -> throw new AssertionError("no such operation: " + operation);
                };
            } catch (RuntimeException e) {
                status = 0;
                answer = e.toString().getBytes(StandardCharsets.UTF_8);
            }
            out.writeByte(status);
            write(out, answer);
        }
        out.flush();
    }

    private static byte[] field(DataInputStream in) throws IOException {
        int size = in.readInt();
        return size < 0 ? null : in.readNBytes(size);
    }

    private static void write(DataOutputStream out, byte[] field) throws IOException {
        out.writeInt(field == null ? -1 : field.length);
        if (field != null)
            out.write(field);
    }

    private static ByteBuffer wrap(byte[] field) {
        return field == null ? null : ByteBuffer.wrap(field);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] found = new byte[buffer.remaining()];
        buffer.duplicate().get(found);
        return found;
    }

    private static Compression compression(int codec, boolean leveled, int level) {
        if (!leveled)
            return Compression.of(NAMES[codec]).build();
        return switch (codec) {
            case 1 -> Compression.gzip().level(level).build();
            case 3 -> Compression.lz4().level(level).build();
            case 4 -> Compression.zstd().level(level).build();
            default -> throw new AssertionError("no levels");
        };
    }

    private static class Batch {
        private record Item(boolean placed, long offset, SimpleRecord record) { }

        private final byte magic;
        private final Compression compression;
        private final TimestampType type;
        private final long appendTime;
        private final long baseOffset;
        private final long producerId;
        private final short producerEpoch;
        private final int sequence;
        private final boolean transactional;
        private final boolean control;
        private final int leaderEpoch;
        private final long horizon;
        private final Item[] items;

        Batch(DataInputStream in) throws IOException {
            magic = in.readByte();
            compression = compression(in.readUnsignedByte(), in.readBoolean(), in.readInt());
            type = in.readBoolean() ? TimestampType.LOG_APPEND_TIME : magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
            appendTime = in.readLong();
            baseOffset = in.readLong();
            producerId = in.readLong();
            producerEpoch = in.readShort();
            sequence = in.readInt();
            transactional = in.readBoolean();
            control = in.readBoolean();
            leaderEpoch = in.readInt();
            horizon = in.readLong();
            items = new Item[in.readInt()];
            for (int i = 0; i < items.length; i++) {
                boolean placed = in.readBoolean();
                long offset = in.readLong();
                long timestamp = in.readLong();
                byte[] key = field(in);
                byte[] value = field(in);
                Header[] headers = new Header[in.readInt()];
                for (int j = 0; j < headers.length; j++)
                    headers[j] = new RecordHeader(new String(field(in), StandardCharsets.UTF_8), field(in));
                items[i] = new Item(placed, offset, new SimpleRecord(timestamp, wrap(key), wrap(value), headers));
            }
        }

        byte[] build() {
            ByteBufferOutputStream buffer = new ByteBufferOutputStream(512);
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, magic, compression, type, baseOffset, appendTime, producerId,
                producerEpoch, sequence, transactional, control, leaderEpoch, Integer.MAX_VALUE, horizon);
            for (Item item : items) {
                if (control)
                    builder.appendControlRecordWithOffset(item.offset, item.record);
                else if (item.placed)
                    builder.appendWithOffset(item.offset, item.record);
                else
                    builder.append(item.record);
            }
            return bytes(builder.build().buffer());
        }
    }

    private static byte[] marker(DataInputStream in) throws IOException {
        ControlRecordType type = in.readBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        long offset = in.readLong();
        long timestamp = in.readLong();
        int leaderEpoch = in.readInt();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        EndTransactionMarker marker = new EndTransactionMarker(type, in.readInt());
        return bytes(MemoryRecords.withEndTransactionMarker(offset, timestamp, leaderEpoch, producerId, producerEpoch, marker).buffer());
    }

    private static byte[] read(byte[] data) throws IOException {
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(result);
        int size = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            size += batch.sizeInBytes();
            batch.ensureValid();
            try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    record.ensureValid();
                    out.writeLong(record.offset());
                    out.writeLong(record.timestamp());
                    out.writeInt(record.sequence());
                    out.writeByte(batch.magic());
                    write(out, bytes(record.key()));
                    write(out, bytes(record.value()));
                    out.writeInt(record.headers().length);
                    for (Header header : record.headers()) {
                        write(out, header.key().getBytes(StandardCharsets.UTF_8));
                        write(out, header.value());
                    }
                }
            }
        }
        if (size != data.length)
            throw new IllegalStateException(size + " of " + data.length + " bytes are batches");
        return result.toByteArray();
    }
}
