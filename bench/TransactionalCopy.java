import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consume, transform, produce: copies records of one topic into another, partition by partition, so many in a transaction
 * that also has the group's offsets.
 *
 *   TransactionalCopy BOOTSTRAP SOURCE TARGET COUNT RECORDS_PER_TRANSACTION TIMES
 *
 * Each time it is another group, another transactional id, and all from the beginning. Prints for each
 * "records transactions nanoseconds": from the first record that is there to the last commit.
 */
public final class TransactionalCopy {
    private static final int POLLED_MAX = 500; // what max.poll.records is unless it is set
    private final Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    private final String target;
    private final int perTransaction;

    private TransactionalCopy(String target, int perTransaction) {
        this.target = target;
        this.perTransaction = perTransaction;
    }

    public static void main(String[] words) {
        for (int time = Integer.parseInt(words[5]); time > 0; time--) {
            Map<String, Object> properties = new HashMap<>();
            String name = "copy-" + UUID.randomUUID();
            properties.put("bootstrap.servers", words[0]);
            properties.put("group.id", name);
            properties.put("enable.auto.commit", "false");
            properties.put("auto.offset.reset", "earliest");
            properties.put("isolation.level", "read_committed");
            int perTransaction = Integer.parseInt(words[4]);
            properties.put("max.poll.records", Math.min(perTransaction, POLLED_MAX));
            try (KafkaConsumer<byte[], byte[]> consumer =
                     new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                 KafkaProducer<byte[], byte[]> producer = producer(words[0], name)) {
                consumer.subscribe(Collections.singleton(words[1]));
                producer.initTransactions();
                new TransactionalCopy(words[2], perTransaction).copy(consumer, producer, Integer.parseInt(words[3]));
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", transactionalId);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void copy(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer, int wanted) {
        long begun = 0;
        int copied = 0;
        int transactions = 0;
        int open = 0;
        while (copied < wanted) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (begun == 0) {
                    begun = System.nanoTime();
                }
                if (open++ == 0) {
                    producer.beginTransaction();
                }
                producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                copied++;
                if (open == perTransaction || copied == wanted) {
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                    offsets.clear();
                    transactions++;
                    open = 0;
                }
                if (copied == wanted) {
                    break;
                }
            }
        }
        System.out.println(copied + " " + transactions + " " + (System.nanoTime() - begun));
    }
}
