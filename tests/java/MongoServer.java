import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/**
 * A server that speaks MongoDB's protocol, in memory, on a free port: prints its address and serves until its input ends.
 *
 * What it can do is MongoDB 4.0's. It says 4.4, because PyMongo talks to nothing older; the commands that our sink sends
 * (update, delete, createIndexes, find) are the same in both.
 */
class InMemory {
    public static void main(String[] arguments) throws Exception {
        MemoryBackend backend = new MemoryBackend();
        backend.version(new Claimed());
        MongoServer server = new MongoServer(backend);
        System.out.println(server.bindAndGetConnectionString());
        System.in.read();
        server.shutdownNow();
    }

    static class Claimed implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0);
        }

        @Override
        public int getWireVersion() {
            return 9;
        }
    }
}
