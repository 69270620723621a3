import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.zip.CRC32;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * What Kafka's own reader makes of log files. Standard input: a line a file, `path TAB position TAB position ...`; it is
 * walked from each of the positions to its end. Standard output, fields separated by tabs:
 *
 * F path
 * W position                     a walk begins
 * B position size magic VALID READ INNER CONTROL HEADER CRC...    a batch: VALID is ok or what ensureValid threw, READ is ok
 *                                or what reading its records threw, INNER how many of them Record.ensureValid refused,
 *                                CONTROL ok, - or what parsing its control records threw, HEADER its fields, then a CRC-32
 *                                for each record that was read
 * E position END                 the walk ends behind position: `end`, or what the iterator threw
 */
public class KafkaReader {
    private interface Value {
        Object get() throws Exception;
    }

    private static final int MOST_RECORDS = 200_000;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t");
            out.println("F\t" + parts[0]);
            try (FileRecords records = FileRecords.open(new File(parts[0]), false)) {
                for (int i = 1; i < parts.length; i++)
                    walk(records, Integer.parseInt(parts[i]), out);
            }
        }
        out.flush();
    }

    private static void walk(FileRecords records, int start, PrintStream out) {
        out.println("W\t" + start);
        int position = start;
        String end = "end";
        try {
            Iterator<FileLogInputStream.FileChannelRecordBatch> batches = records.batchesFrom(start).iterator();
            while (batches.hasNext()) {
                FileLogInputStream.FileChannelRecordBatch batch = batches.next();
                position = batch.position() + batch.sizeInBytes();
                out.println(described(batch));
            }
        } catch (Throwable thrown) {
            end = name(thrown);
        }
        out.println("E\t" + position + "\t" + end);
    }

    private static String described(FileLogInputStream.FileChannelRecordBatch batch) {
        StringBuilder line = new StringBuilder("B\t").append(batch.position()).append('\t').append(batch.sizeInBytes());
        line.append('\t').append(batch.magic());
        String valid = "ok";
        try {
            batch.ensureValid();
        } catch (Throwable thrown) {
            valid = name(thrown);
        }
        line.append('\t').append(valid);
        if (!valid.equals("ok"))
            return line.append("\t-\t0\t-\t-").toString();
        StringBuilder checksums = new StringBuilder();
        String read = "ok";
        String control = "-";
        int refused = 0;
        int count = 0;
        try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            boolean controls = batch.isControlBatch();
            if (controls)
                control = "ok";
            while (records.hasNext()) {
                Record record = records.next();
                if (++count > MOST_RECORDS)
                    throw new IllegalStateException("too many records");
                checksums.append('\t').append(checksum(record));
                try {
                    record.ensureValid();
                } catch (Throwable thrown) {
                    refused++;
                }
                if (controls && control.equals("ok"))
                    control = control(record);
            }
        } catch (Throwable thrown) {
            read = name(thrown);
        }
        line.append('\t').append(read).append('\t').append(refused).append('\t').append(control);
        return line.append('\t').append(header(batch)).append(checksums).toString();
    }

    /** What a consumer and a broker do with a control record. */
    private static String control(Record record) {
        try {
            ControlRecordType type = ControlRecordType.parse(record.key());
            if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT)
                EndTransactionMarker.deserialize(record);
            return "ok";
        } catch (Throwable thrown) {
            return name(thrown);
        }
    }

    private static String header(RecordBatch batch) {
        if (batch.magic() < 2)
            return fields(batch::lastOffset, batch::maxTimestamp, batch::timestampType, () -> codec(batch), batch::checksum);
        return fields(batch::baseOffset, batch::lastOffset, batch::countOrNull, batch::maxTimestamp, batch::timestampType, () -> codec(batch),
            batch::checksum, batch::producerId, batch::producerEpoch, batch::baseSequence, batch::lastSequence, batch::isTransactional,
            batch::isControlBatch, batch::partitionLeaderEpoch,
            () -> batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : "none");
    }

    private static String codec(RecordBatch batch) {
        CompressionType type = batch.compressionType();
        return type.name;
    }

    private static String fields(Value... values) {
        StringBuilder line = new StringBuilder();
        for (Value value : values) {
            if (line.length() > 0)
                line.append(',');
            try {
                line.append(value.get());
            } catch (Throwable thrown) {
                line.append(name(thrown));
            }
        }
        return line.toString();
    }

    private static String checksum(Record record) throws Exception {
        CRC32 checksum = new CRC32();
        update(checksum, record.offset(), 8);
        update(checksum, record.timestamp(), 8);
        update(checksum, record.sequence(), 4);
        update(checksum, record.key());
        update(checksum, record.value());
        Header[] headers = record.headers();
        update(checksum, headers.length, 4);
        for (Header header : headers) {
            update(checksum, ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
            update(checksum, header.value() == null ? null : ByteBuffer.wrap(header.value()));
        }
        return Long.toHexString(checksum.getValue());
    }

    private static void update(CRC32 checksum, long number, int bytes) {
        for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
            checksum.update((int) (number >> shift) & 0xff);
    }

    private static void update(CRC32 checksum, ByteBuffer bytes) {
        update(checksum, bytes == null ? -1 : bytes.remaining(), 4);
        if (bytes != null)
            checksum.update(bytes.duplicate());
    }

    private static String name(Throwable thrown) {
        return thrown.getClass().getSimpleName();
    }
}
