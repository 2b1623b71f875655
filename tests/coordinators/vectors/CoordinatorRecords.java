// Writes coordinator_records.txt with Kafka's own classes: java -cp "<kafka 4.3.1 jars>/*" CoordinatorRecords.java
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.server.common.ApiMessageAndVersion;

public class CoordinatorRecords {
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    static final Uuid TOPIC = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);

    static String hex(byte[] bytes) {
        if (bytes == null) return "null";
        StringBuilder out = new StringBuilder();
        for (byte each : bytes) out.append(String.format("%02x", each));
        return out.toString();
    }

    static void print(CoordinatorRecord record) {
        System.out.println(hex(SERDE.serializeKey(record)) + " " + hex(SERDE.serializeValue(record)));
    }

    static void print(ApiMessage key, ApiMessage value, int... versions) {
        for (int version : versions) print(CoordinatorRecord.record(key, new ApiMessageAndVersion(value, (short) version)));
        print(CoordinatorRecord.tombstone(key));
    }

    public static void main(String[] args) {
        print(new LegacyOffsetCommitKey().setGroup("g").setTopic("t").setPartition(3),
            new LegacyOffsetCommitValue().setOffset(7).setMetadata("note").setCommitTimestamp(99), 0);
        OffsetCommitKey offsetKey = new OffsetCommitKey().setGroup("grüße").setTopic("t").setPartition(3);
        print(offsetKey, new OffsetCommitValue().setOffset(7).setMetadata("note").setCommitTimestamp(99), 0, 2);
        print(offsetKey, new OffsetCommitValue().setOffset(7).setMetadata("").setCommitTimestamp(99).setExpireTimestamp(100), 1);
        print(offsetKey, new OffsetCommitValue().setOffset(7).setLeaderEpoch(5).setMetadata("").setCommitTimestamp(99), 3, 4);
        print(offsetKey, new OffsetCommitValue().setOffset(7).setLeaderEpoch(5).setMetadata("").setCommitTimestamp(99).setTopicId(TOPIC), 4);
        GroupMetadataValue.MemberMetadata member = new GroupMetadataValue.MemberMetadata().setMemberId("m").setClientId("c")
            .setClientHost("/127.0.0.1").setSessionTimeout(45000).setSubscription(new byte[] {1, 2}).setAssignment(new byte[] {3});
        GroupMetadataValue group = new GroupMetadataValue().setProtocolType("consumer").setGeneration(4).setProtocol("range")
            .setLeader("m").setMembers(List.of(member));
        print(new GroupMetadataKey().setGroup("g"), group, 0);
        member.setRebalanceTimeout(60000);
        print(new GroupMetadataKey().setGroup("g"), group, 1);
        group.setCurrentStateTimestamp(77);
        member.setGroupInstanceId("static");
        print(new GroupMetadataKey().setGroup("g"), group, 3, 4);
        print(new GroupMetadataKey().setGroup("g"), new GroupMetadataValue().setProtocolType("").setProtocol(null).setLeader(null), 3);
        print(new ConsumerGroupMetadataKey().setGroupId("g"), new ConsumerGroupMetadataValue().setEpoch(9).setMetadataHash(-5), 0);
        print(new ConsumerGroupPartitionMetadataKey().setGroupId("g"), new ConsumerGroupPartitionMetadataValue().setTopics(List.of(
            new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(TOPIC).setTopicName("t").setNumPartitions(2)
                .setPartitionMetadata(List.of(new ConsumerGroupPartitionMetadataValue.PartitionMetadata().setPartition(1).setRacks(List.of("r")))))), 0);
        ConsumerGroupMemberMetadataKey memberKey = new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m");
        ConsumerGroupMemberMetadataValue memberValue = new ConsumerGroupMemberMetadataValue().setInstanceId(null).setRackId("r")
            .setClientId("c").setClientHost("h").setSubscribedTopicNames(List.of("a", "b")).setSubscribedTopicRegex("x.*")
            .setRebalanceTimeoutMs(5).setServerAssignor("range");
        print(memberKey, memberValue, 0);
        memberValue.setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(6)
            .setSupportedProtocols(List.of(new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[] {9}))));
        print(memberKey, memberValue, 0);
        print(new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g"),
            new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(3).setAssignmentTimestamp(88), 0);
        print(new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m"),
            new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
                new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(TOPIC).setPartitions(List.of(0, 2)))), 0);
        print(new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"),
            new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(4).setPreviousMemberEpoch(3).setState((byte) 1)
                .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(TOPIC)
                    .setPartitions(List.of(0, 1)).setAssignmentEpochs(List.of(3, 4))))
                .setPartitionsPendingRevocation(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions()
                    .setTopicId(TOPIC).setPartitions(List.of(2)))), 0);
        print(new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("x.*"),
            new ConsumerGroupRegularExpressionValue().setTopics(List.of("xa")).setVersion(12).setTimestamp(34), 0);
    }
}
