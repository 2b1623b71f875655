import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A member of a group that copies with Kafka's own client, which speaks transaction version 2: the loop of KIP-447. A process
 * as tests/faults/transactions/copier.py is one, and says the same on standard output.
 *
 *   TransactionCopier NAME INCARNATION VERSION SEED GROUP BOOTSTRAP
 */
public final class TransactionCopier {
    private static final String SOURCE = "shared";
    private static final String TARGET = "out";
    private static final int TARGETS = 3;
    private static final double DOOMED = 0.12;
    private static final int FENCED_EXIT = 3;
    private static final int UNSURE_EXIT = 4;

    private final String name;
    private final Random chance;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private int number;
    private long begun;

    private TransactionCopier(String[] args) {
        name = args[0] + "." + args[1];
        chance = new Random((args[3] + name).hashCode());
        Map<String, Object> base = new HashMap<>();
        base.put("bootstrap.servers", args[5]);
        base.put("client.id", "v2-" + args[0]);
        base.put("request.timeout.ms", "4000");
        base.put("reconnect.backoff.max.ms", "300");
        base.put("metadata.max.age.ms", "2000");
        Map<String, Object> reading = new HashMap<>(base);
        reading.put("group.id", args[4]);
        reading.put("session.timeout.ms", "6000");
        reading.put("heartbeat.interval.ms", "1000");
        reading.put("max.poll.interval.ms", "15000");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", "300");
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Map<String, Object> writing = new HashMap<>(base);
        writing.put("transactional.id", args[0]);
        writing.put("transaction.timeout.ms", "6000");
        writing.put("delivery.timeout.ms", "15000");
        writing.put("max.block.ms", "15000");
        producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] args) {
        int code;
        try {
            code = new TransactionCopier(args).run();
        } catch (Throwable failure) {
            say("refused - " + failure);
            code = FENCED_EXIT;
        }
        Runtime.getRuntime().halt(code);
    }

    /** Copies until the producer is of no use; the exit code. */
    private int run() {
        try {
            say("init");
            producer.initTransactions();
            say("ready");
            consumer.subscribe(Collections.singletonList(SOURCE));
            while (true) {
                ConsumerRecords<byte[], byte[]> read = consumer.poll(Duration.ofMillis(200));
                if (!read.isEmpty()) {
                    copy(read);
                }
            }
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException fenced) {
            double seconds = begun == 0 ? 0 : (System.nanoTime() - begun) / 1e9;
            say(String.format(Locale.ROOT, "fenced %.1f %s", seconds, fenced));
            return FENCED_EXIT;
        } catch (TimeoutException unknown) {  // whether it was committed: the next process sees it in the offsets
            say("unsure " + unknown);
            return UNSURE_EXIT;
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> read) {
        boolean isDoomed = chance.nextDouble() < DOOMED;
        number++;
        begun = System.nanoTime();
        producer.beginTransaction();
        try {
            write(read, isDoomed);
            producer.sendOffsetsToTransaction(next(read), consumer.groupMetadata());
            if (!isDoomed) {
                producer.commitTransaction();
            }
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException
                | FencedInstanceIdException | TimeoutException fatal) {
            throw fatal;
        } catch (KafkaException abortable) {
            if (isReplaced(abortable)) {
                throw new ProducerFencedException(abortable.getMessage());
            }
            say("aborts " + abortable);
            isDoomed = true;
        }
        if (isDoomed) {
            producer.abortTransaction();
            read.partitions().stream().filter(consumer.assignment()::contains)
                .forEach(each -> consumer.seek(each, read.records(each).get(0).offset()));
        } else {
            say("committed " + number + " " + read.count());
        }
        begun = 0;
    }

    /** Whether a later process of the transactional id has another producer id: it began when the epochs were used up. */
    private static boolean isReplaced(KafkaException failure) {
        return String.valueOf(failure.getMessage()).contains(Errors.INVALID_PRODUCER_ID_MAPPING.message());
    }

    private void write(ConsumerRecords<byte[], byte[]> read, boolean isDoomed) {
        Map<Integer, List<String>> labels = new TreeMap<>();
        for (ConsumerRecord<byte[], byte[]> record : read) {
            String label = new String(record.value(), StandardCharsets.UTF_8).split(" ", 2)[0];
            int source = Integer.parseInt(label.substring(label.lastIndexOf('-') + 1, label.indexOf('/')));
            labels.computeIfAbsent(source % TARGETS, unused -> new ArrayList<>()).add(label);
        }
        String end = isDoomed ? "a" : "c";
        labels.forEach((target, copied) -> {
            for (int at = 0; at < copied.size(); at++) {
                String value = String.join(" ", copied.get(at), name + "." + number, "" + at, "" + copied.size(), end);
                producer.send(new ProducerRecord<>(TARGET, target, null, value.getBytes(StandardCharsets.UTF_8)));
            }
        });
    }

    private static Map<TopicPartition, OffsetAndMetadata> next(ConsumerRecords<byte[], byte[]> read) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition each : read.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> records = read.records(each);
            offsets.put(each, new OffsetAndMetadata(records.get(records.size() - 1).offset() + 1));
        }
        return offsets;
    }

    private static void say(String line) {
        System.out.println(line.replaceAll("\\s+", " "));
        System.out.flush();
    }
}
