import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints the names of configurations that are not sensitive, as `broker NAME`, `topic NAME`, `group NAME`, and the releases of
 * metadata.version as `version LEVEL RELEASE`. With an argument: for each line `TYPE NAME` of standard input whether its
 * value may be shown, `true` or `false`.
 */
public class ConfigNames {
    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ", 2);
                ConfigResource.Type type = ConfigResource.Type.valueOf(words[0]);
                System.out.println(KafkaConfig.loggableValue(type, words[1], "shown").equals("shown"));
            }
            return;
        }
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            System.out.println("version " + version.featureLevel() + " " + version.version());
        }
        TreeSet<String> brokers = new TreeSet<>(KafkaConfig.configDef().configKeys().keySet());
        brokers.addAll(DynamicConfig.Broker.configKeys().keySet());
        for (String name : brokers) {
            print(ConfigResource.Type.BROKER, name);
        }
        for (String name : new TreeSet<>(LogConfig.configDefCopy().configKeys().keySet())) {
            print(ConfigResource.Type.TOPIC, name);
        }
        for (String name : new TreeSet<>(GroupConfig.configNames())) {
            print(ConfigResource.Type.GROUP, name);
        }
    }

    private static void print(ConfigResource.Type type, String name) {
        if (KafkaConfig.loggableValue(type, name, "shown").equals("shown")) {
            System.out.println(type.name().toLowerCase() + " " + name);
        }
    }
}
