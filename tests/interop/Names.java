import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.LocalLog;
import org.apache.kafka.storage.internals.log.LogFileUtils;

/**
 * What a broker reads from a name. Standard input: names, a line each; standard output: for each the partition TAB the topic of a directory
 * of that name, or a dash, and TAB the number that a file's name begins with, or a dash.
 */
public class Names {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String name = input.readLine(); name != null; name = input.readLine())
            output.println(directory(name) + "\t" + file(name));
        output.flush();
    }

    private static String directory(String name) {
        try {
            TopicPartition found = LocalLog.parseTopicPartitionName(new File("/logs/" + name));
            return found.partition() + "\t" + found.topic();
        } catch (Exception refused) {
            return "-\t-";
        }
    }

    private static String file(String name) {
        try {
            return Long.toString(LogFileUtils.offsetFromFileName(name));
        } catch (NumberFormatException | StringIndexOutOfBoundsException refused) {
            return "-";
        }
    }
}
