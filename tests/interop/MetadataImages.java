import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.OptionalInt;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriter;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.SupportedConfigChecker;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Builds metadata images with Kafka's classes. Each line of standard input is a job: a snapshot or `-`, its end offset, the
 * last offset that counts, then the segments, all with tabs between them. Prints per job the records that the image would
 * be written as, in hexadecimal, `fault MESSAGE` for what the fault handler gets, then `end`.
 */
public class MetadataImages {
    public static void main(String[] args) throws Exception {
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String job = jobs.readLine(); job != null; job = jobs.readLine()) {
            String[] parts = job.split("\t");
            MetadataImage image = parts[0].equals("-") ? MetadataImage.EMPTY : snapshot(new File(parts[0]));
            long start = Long.parseLong(parts[1]);
            long last = Long.parseLong(parts[2]);
            List<File> segments = new ArrayList<>();
            for (int index = 3; index < parts.length; index++) {
                segments.add(new File(parts[index]));
            }
            print(load(image, segments, start, last));
            System.out.println("end");
        }
    }

    private static RuntimeException fault(String message, Throwable cause) {
        String line = message + ": " + cause;
        System.out.println("fault " + line.replace('\n', ' '));
        return new RuntimeException(cause);
    }

    private static MetadataImage snapshot(File file) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().build();
        try (FileRecords records = FileRecords.open(file, false)) {
            for (RecordBatch batch : records.batches()) {
                if (!batch.isControlBatch()) {
                    for (Record record : batch) {
                        try {
                            delta.replay(message(record).message());
                        } catch (Throwable thrown) {
                            fault("snapshot", thrown);
                        }
                    }
                }
            }
        }
        delta.finishSnapshot();
        return delta.apply(MetadataProvenance.EMPTY);
    }

    private static MetadataImage load(MetadataImage image, List<File> segments, long start, long last)
            throws Exception {
        MetadataImage[] found = {image};
        MetadataBatchLoader loader = new MetadataBatchLoader(
            new LogContext(), Time.SYSTEM, MetadataImages::fault, (delta, newImage, manifest) -> found[0] = newImage,
            SupportedConfigChecker.TRUE);
        loader.resetToImage(image);
        LeaderAndEpoch leader = new LeaderAndEpoch(OptionalInt.empty(), 0);
        for (File segment : segments) {
            try (FileRecords records = FileRecords.open(segment, false)) {
                for (RecordBatch batch : records.batches()) {
                    List<ApiMessageAndVersion> messages = new ArrayList<>();
                    long base = -1;
                    if (!batch.isControlBatch()) {
                        for (Record record : batch) {
                            if (record.offset() >= start && record.offset() <= last) {
                                base = base < 0 ? record.offset() : base;
                                messages.add(message(record));
                            }
                        }
                    }
                    if (!messages.isEmpty()) {
                        loader.loadBatch(Batch.data(base, 1, 0, batch.sizeInBytes(), messages), leader);
                        loader.maybeFlushBatches(leader, true);
                    }
                }
            }
        }
        return found[0];
    }

    private static ApiMessageAndVersion message(Record record) {
        ByteBuffer value = record.value();
        return MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(value), value.remaining());
    }

    private static void print(MetadataImage image) {
        MetadataVersion version = image.features().metadataVersion().orElse(MetadataVersion.latestTesting());
        ImageWriterOptions options = new ImageWriterOptions.Builder(version).setEligibleLeaderReplicasEnabled(true).build();
        image.write(new ImageWriter() {
            @Override
            public void write(ApiMessageAndVersion message) {
                // an image is always written with a metadata.version, even where it has none
                if (image.features().metadataVersion().isEmpty()
                        && message.message() instanceof FeatureLevelRecord level
                        && level.name().equals(MetadataVersion.FEATURE_NAME)) {
                    return;
                }
                ObjectSerializationCache cache = new ObjectSerializationCache();
                int size = MetadataRecordSerde.INSTANCE.recordSize(message, cache);
                ByteBuffer buffer = ByteBuffer.allocate(size);
                MetadataRecordSerde.INSTANCE.write(message, cache, new ByteBufferAccessor(buffer));
                System.out.println(HexFormat.of().formatHex(buffer.array(), 0, buffer.position()));
            }

            @Override
            public void close(boolean complete) { }
        }, options);
    }
}
