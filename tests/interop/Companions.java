import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.raft.ElectionState;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadata;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

/**
 * What Kafka's readers of the small files make of bytes, and what its producer snapshots look like. Standard input: lines
 * `kind BLANK base64`; standard output: a line each, `refused` where the reader throws. Text comes as hexadecimal UTF-16.
 */
public class Companions {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        File root = Files.createTempDirectory("companions").toFile();
        File file = new File(new File(root, "topic-0"), "file");
        file.getParentFile().mkdir();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", -1);
            byte[] data = Base64.getDecoder().decode(parts[1]);
            Files.write(file.toPath(), data);
            String found;
            try {
                found = read(parts[0], data, file, root);
            } catch (Exception | OutOfMemoryError refused) {
                found = "refused";
            }
            output.println(found);
        }
        output.flush();
    }

    private static String read(String kind, byte[] data, File file, File root) throws Exception {
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        StringBuilder text = new StringBuilder();
        switch (kind) {
            case "epochs":
                for (EpochEntry entry : new LeaderEpochCheckpointFile(file, failures).read())
                    text.append(entry.epoch()).append(' ').append(entry.startOffset()).append(';');
                return text.toString();
            case "offsets":
                Map<String, Long> offsets = new TreeMap<>();
                for (Map.Entry<TopicPartition, Long> entry : new OffsetCheckpointFile(file, failures).read().entrySet())
                    offsets.put(hex(entry.getKey().topic()) + " " + entry.getKey().partition(), entry.getValue());
                offsets.forEach((key, value) -> text.append(key).append(' ').append(value).append(';'));
                return text.toString();
            case "metadata":
                PartitionMetadata metadata = new PartitionMetadataFile(file, failures).read();
                return metadata.version() + " " + metadata.topicId();
            case "properties":
                Map<String, String> properties = new TreeMap<>();
                PropertiesUtils.readPropertiesFile(file.getPath())
                    .forEach((key, value) -> properties.put(hex((String) key), hex((String) value)));
                properties.forEach((key, value) -> text.append(key).append('=').append(value).append(';'));
                return text.toString();
            case "meta":
                MetaProperties meta = new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(file.getPath())).build();
                return meta.version().number() + " " + meta.clusterId().map(Companions::hex)
                    + " " + (meta.nodeId().isPresent() ? Optional.of(meta.nodeId().getAsInt()) : Optional.empty())
                    + " " + meta.directoryId();
            case "quorum":
                ElectionState state = new FileQuorumStateStore(file).readElectionState().get();
                return state.epoch() + " " + state.leaderIdOrSentinel() + " "
                    + state.optionalVotedKey().map(key -> key.id() + " " + key.directoryId());
            case "clean":
                File marker = new File(root, CleanShutdownFileHandler.CLEAN_SHUTDOWN_FILE_NAME);
                Files.copy(file.toPath(), marker.toPath(), StandardCopyOption.REPLACE_EXISTING);
                return new CleanShutdownFileHandler(root.getPath()).read().toString();
            case "snapshot":
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                    text.append(entry.producerId()).append(' ').append(entry.producerEpoch());
                    text.append(' ').append(entry.coordinatorEpoch()).append(' ').append(entry.lastTimestamp());
                    text.append(' ').append(entry.currentTxnFirstOffset());
                    entry.batchMetadata().forEach(batch ->
                        text.append(' ').append(batch.firstSeq()).append(' ').append(batch.lastOffset()));
                    text.append(';');
                }
                return text.toString();
            case "rewrite":
                Map<Long, ProducerStateEntry> producers = new HashMap<>();
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file))
                    producers.put(entry.producerId(), entry);
                Files.delete(file.toPath());
                ProducerStateManager.writeSnapshot(file, producers, false);
                return Base64.getEncoder().encodeToString(Files.readAllBytes(file.toPath()));
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (char unit : text.toCharArray())
            digits.append(String.format("%04x", (int) unit));
        return digits.toString();
    }
}
