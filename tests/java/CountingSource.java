import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ConnectorTransactionBoundaries;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.source.TransactionContext;

/**
 * A source connector that counts: task N writes N:0, N:1, ... up to N:LAST-1 into partition N of its topic.
 *
 * Where the connector sets the boundaries of transactions, every fifth transaction ends with abort. What was aborted is not sent again
 * by Connect; the offset that is stored is the one of the last transaction that was committed.
 */
public class CountingSource extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public void stop() {
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counting.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasks) {
        List<Map<String, String>> all = new ArrayList<>();
        for (int number = 0; number < tasks; number++) {
            Map<String, String> one = new java.util.HashMap<>(settings);
            one.put("task", Integer.toString(number));
            all.add(one);
        }
        return all;
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef()
            .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where the numbers go")
            .define("pace.ms", ConfigDef.Type.LONG, ConfigDef.Importance.LOW, "the time between two polls")
            .define("last", ConfigDef.Type.INT, ConfigDef.Importance.HIGH, "how many numbers a task writes");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public ConnectorTransactionBoundaries canDefineTransactionBoundaries(Map<String, String> given) {
        return ConnectorTransactionBoundaries.SUPPORTED;
    }

    public static class Counting extends SourceTask {
        private static final int PER_POLL = 10;
        private static final int PER_TRANSACTION = 25;
        private static final int ABORTED_OF = 5;

        private Map<String, String> partition;
        private TransactionContext transaction;
        private String topic;
        private long paceMs;
        private int task;
        private int last;
        private int next;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            task = Integer.parseInt(settings.get("task"));
            last = Integer.parseInt(settings.get("last"));
            paceMs = Long.parseLong(settings.get("pace.ms"));
            partition = Map.of("task", settings.get("task"));
            transaction = context.transactionContext();
            Map<String, Object> stored = context.offsetStorageReader().offset(partition);
            next = stored == null ? 0 : ((Number) stored.get("next")).intValue();
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            List<SourceRecord> records = new ArrayList<>();
            while (records.size() < PER_POLL && next < last) {
                records.add(record(next++));
            }
            Thread.sleep(paceMs);
            return records.isEmpty() ? null : records;
        }

        private SourceRecord record(int number) {
            SourceRecord made = new SourceRecord(
                partition, Map.of("next", number + 1), topic, task, Schema.STRING_SCHEMA, null, Schema.STRING_SCHEMA, task + ":" + number);
            boolean isEnd = (number + 1) % PER_TRANSACTION == 0 || number + 1 == last;
            if (transaction != null && isEnd) {
                if (number / PER_TRANSACTION % ABORTED_OF == ABORTED_OF - 1) {
                    transaction.abortTransaction(made);
                } else {
                    transaction.commitTransaction(made);
                }
            }
            return made;
        }

        @Override
        public void stop() {
        }
    }
}
