import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartitionReplica;

/**
 * Moves replicas of a broker's topics from one of its log directories to the other and back, and makes and deletes
 * topics, until it is killed. Prints a line a turn. Arguments: bootstrap server, log directory, log directory, topics.
 */
public class Churn {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            for (int turn = 0; ; turn++) {
                Map<TopicPartitionReplica, String> to = new HashMap<>();
                for (int i = 3; i < args.length; i++) {
                    to.put(new TopicPartitionReplica(args[i], 0, 1), args[1 + turn % 2]);
                }
                try {
                    admin.alterReplicaLogDirs(to).all().get();
                } catch (ExecutionException e) {
                    // one that has not come to its last place is not moved again
                    System.err.println(e);
                }
                admin.createTopics(List.of(new NewTopic("short-lived-" + turn, 2, (short) 1))).all().get();
                if (turn > 1) {
                    admin.deleteTopics(List.of("short-lived-" + (turn - 2))).all().get();
                }
                System.out.println("turn " + turn);
                Thread.sleep(1000);
            }
        }
    }
}
