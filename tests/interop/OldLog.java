import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import kafka.log.Log;
import kafka.log.LogAppendInfo;
import kafka.log.LogConfig;
import kafka.utils.KafkaScheduler;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.SystemTime;

/**
 * The log of a broker of 0.10.2, told what to do on standard input; a line each, its words separated by tabs:
 *
 * `open` directory, settings as `name=value,name=value`;
 * `leader` file, position, size: appends these bytes of the file with offsets of its own: a line `first last`, or the name of the exception;
 * `close`: as a broker that stops.
 *
 * Behind what a command prints stands a line with its name.
 */
public class OldLog {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        KafkaScheduler scheduler = new KafkaScheduler(1, "log-", true);
        scheduler.startup();
        Log log = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "open" -> {
                    Properties settings = new Properties();
                    for (String setting : words[2].split(",")) {
                        settings.setProperty(setting.split("=")[0], setting.split("=")[1]);
                    }
                    File directory = new File(words[1]);
                    Files.createDirectories(directory.toPath());
                    log = new Log(directory, new LogConfig(settings), 0L, scheduler, new SystemTime());
                }
                case "leader" -> {
                    byte[] data = Files.readAllBytes(Path.of(words[1]));
                    int position = Integer.parseInt(words[2]);
                    ByteBuffer own = ByteBuffer.wrap(Arrays.copyOfRange(data, position, position + Integer.parseInt(words[3])));
                    try {
                        LogAppendInfo done = log.append(MemoryRecords.readableRecords(own), true);
                        System.out.println(done.firstOffset() + " " + done.lastOffset());
                    } catch (Exception refused) {
                        System.out.println(refused.getClass().getSimpleName());
                    }
                }
                default -> {
                    log.flush();
                    log.close();
                }
            }
            System.out.println(words[0]);
        }
        System.out.flush();
        System.exit(0);
    }
}
