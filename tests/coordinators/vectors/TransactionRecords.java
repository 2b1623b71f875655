// Writes transaction_records.txt with Kafka's own classes: java -cp "<kafka 4.3.1 jars>/*" TransactionRecords.java
import java.util.List;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

public class TransactionRecords {
    static String hex(byte[] bytes) {
        if (bytes == null) return "null";
        StringBuilder out = new StringBuilder();
        for (byte each : bytes) out.append(String.format("%02x", each));
        return out.toString();
    }

    static void print(String id, TransactionLogValue value, int version) {
        byte[] key = MessageUtil.toCoordinatorTypePrefixedBytes(new TransactionLogKey().setTransactionalId(id));
        System.out.println(hex(key) + " " + (value == null ? "null" : hex(MessageUtil.toVersionPrefixedBytes((short) version, value))));
    }

    public static void main(String[] args) {
        TransactionLogValue plain = new TransactionLogValue().setProducerId(4000).setProducerEpoch((short) 3)
            .setTransactionTimeoutMs(60000).setTransactionStatus((byte) 0).setTransactionPartitions(null)
            .setTransactionLastUpdateTimestampMs(1700000000000L).setTransactionStartTimestampMs(-1);
        print("grüße", plain, 0);
        print("grüße", plain, 1);
        plain.setTransactionStatus((byte) 1).setTransactionStartTimestampMs(1700000000001L).setTransactionPartitions(List.of(
            new TransactionLogValue.PartitionsSchema().setTopic("a").setPartitionIds(List.of(0, 2)),
            new TransactionLogValue.PartitionsSchema().setTopic("__consumer_offsets").setPartitionIds(List.of(7))));
        print("copier", plain, 0);
        plain.setPreviousProducerId(4000).setClientTransactionVersion((short) 2);
        print("copier", plain, 1);
        plain.setTransactionStatus((byte) 2).setProducerEpoch(Short.MAX_VALUE).setNextProducerId(5000);
        print("copier", plain, 1);
        plain.setTransactionStatus((byte) 4).setProducerId(5000).setProducerEpoch((short) 0).setNextProducerId(-1)
            .setTransactionPartitions(List.of());
        print("copier", plain, 1);
        plain.setTransactionStatus((byte) 3).setNextProducerId(5000).setNextProducerEpoch((short) 9);
        print("two phases", plain, 1);
        print("copier", null, 0);
    }
}
