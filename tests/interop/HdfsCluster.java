import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one node on loopback, until standard input ends: HdfsCluster DIRECTORY FOLDER... puts the folders into /. */
public class HdfsCluster {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("hdfs.minidfs.basedir", arguments[0]);
        configuration.setLong("dfs.namenode.fs-limits.min-block-size", 1024);
        configuration.setInt("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 10); // to close a file
        configuration.setLong("dfs.blocksize", 64 << 10); // logs have several blocks
        try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build()) {
            cluster.waitActive();
            FileSystem system = cluster.getFileSystem();
            for (int i = 1; i < arguments.length; i++) {
                system.copyFromLocalFile(new org.apache.hadoop.fs.Path(arguments[i]), new org.apache.hadoop.fs.Path("/"));
            }
            System.out.println("READY " + cluster.getNameNodePort() + " "
                    + cluster.getNameNode().getHttpAddress().getPort());
            while (System.in.read() >= 0) { }
        }
    }
}
