import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's transactional producer under remote control: commands on stdin, answers on stdout, as of ClientDriver. Compiled
 * against kafka-clients 3.9.1, which knows transaction version 1 only, and 4.3.1. Values are Base64; NAME is any word that
 * tells one producer from another.
 *
 *   init NAME PROPS..                                 a producer whose transactional id is registered
 *   begin|commit|abort|close NAME
 *   send NAME TOPIC VALUE..                           to partition 0, until all are acknowledged
 *   copy NAME SOURCE TARGET COUNT commit|abort PROPS..  read so many records as a member of a group, and write them again
 *                                                     in a transaction that has the group's offsets
 *   read TOPIC PROPS..                                -> the values up to the end of partition 0, one in a line
 */
public final class TransactionDriver {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] args) throws IOException {
        TransactionDriver driver = new TransactionDriver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                driver.run(line.split("\t"));
                OUT.println("ok");
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                String message = String.valueOf(cause.getMessage()).replaceAll("\\s+", " ");
                OUT.println("error\t" + cause.getClass().getSimpleName() + "\t" + message);
            }
            OUT.flush();
        }
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "init": init(words); break;
            case "begin": producers.get(words[1]).beginTransaction(); break;
            case "commit": producers.get(words[1]).commitTransaction(); break;
            case "abort": producers.get(words[1]).abortTransaction(); break;
            case "close": producers.remove(words[1]).close(Duration.ofSeconds(5)); break;
            case "send": send(words); break;
            case "copy": copy(words); break;
            case "read": read(words); break;
            default: throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private void init(String[] words) {
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties(words, 2), new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(words[1], producer);
        producer.initTransactions();
    }

    private void send(String[] words) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 3; i < words.length; i++) {
            byte[] value = Base64.getDecoder().decode(words[i]);
            sent.add(producers.get(words[1]).send(new ProducerRecord<>(words[2], 0, null, value)));
        }
        producers.get(words[1]).flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private void copy(String[] words) {
        KafkaProducer<byte[], byte[]> producer = producers.get(words[1]);
        TopicPartition source = new TopicPartition(words[2], 0);
        int wanted = Integer.parseInt(words[4]);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 6)) {
            consumer.subscribe(Collections.singletonList(words[2]));
            producer.beginTransaction();
            long next = 0;
            while (wanted > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if (wanted-- > 0) {
                        producer.send(new ProducerRecord<>(words[3], 0, null, record.value()));
                        next = record.offset() + 1;
                    }
                }
            }
            producer.flush();  // an abort drops what was not sent yet
            producer.sendOffsetsToTransaction(
                Collections.singletonMap(source, new OffsetAndMetadata(next)), consumer.groupMetadata());
            if (words[5].equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private static void read(String[] words) {
        TopicPartition partition = new TopicPartition(words[1], 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 2)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            long end = consumer.endOffsets(Collections.singleton(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    OUT.println(Base64.getEncoder().encodeToString(record.value()));
                }
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String[] words, int from) {
        Map<String, Object> properties = properties(words, from);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<String, Object> properties(String[] words, int from) {
        Map<String, Object> properties = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            properties.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        return properties;
    }
}
