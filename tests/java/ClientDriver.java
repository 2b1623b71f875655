import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java producer and consumer under remote control: commands on stdin, answers on stdout.
 *
 * The same source is compiled against kafka-clients 0.10.2.0 and 4.3.1; what only one of them has (poll(Duration),
 * record headers) is reached by reflection. A command is one line of tab-separated words, client properties last as
 * name=value. Keys, values and header values are Base64, a null is "-". An answer is any number of lines and then "ok", or
 * "error", the exception's class and its message:
 *
 *   produce TOPIC PARTITION|- COUNT PROPS..         + COUNT lines "key value timestamp|- header:value ..."
 *                                                   -> COUNT lines "offset partition"
 *   read TOPIC PARTITION START COUNT TIMEOUT PROPS..  START: earliest, latest, an offset or @timestamp
 *                                                   -> lines "offset timestamp key value header:value ..."
 *   offsets TOPIC PARTITION PROPS..                 -> "beginning end"
 *   offset-at TOPIC PARTITION TIMESTAMP PROPS..     -> "offset timestamp", or "- -" past the last record
 *   drain TOPIC COUNT TIMEOUT PROPS..               -> "records bytes nanoseconds", every partition from its beginning
 *   group TOPIC PROPS..                             be a member of the group until SIGTERM, and commit what is read
 *                                                   -> events, in the words of Kafka's VerifiableConsumer
 *   close                                           closes the producers, which stay open between commands
 */
public final class ClientDriver {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] args) throws IOException {
        new ClientDriver().serve();
    }

    private void serve() throws IOException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                run(line.split("\t"));
                OUT.println("ok");
            } catch (Exception failure) {
                boolean wrapped = failure instanceof ExecutionException || failure instanceof InvocationTargetException;
                report(wrapped ? failure.getCause() : failure);
            }
            OUT.flush();
        }
        close();
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "produce": produce(words); break;
            case "read": read(words); break;
            case "offsets": offsets(words); break;
            case "offset-at": offsetAt(words); break;
            case "drain": drain(words); break;
            case "group": group(words); break;
            case "close": close(); break;
            default: throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static void report(Throwable failure) {
        String message = String.valueOf(failure.getMessage()).replaceAll("\\s+", " ");
        OUT.println("error\t" + failure.getClass().getSimpleName() + "\t" + message);
    }

    // --- producing ---

    private void produce(String[] words) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        Integer partition = words[2].equals("-") ? null : Integer.valueOf(words[2]);
        for (int count = Integer.parseInt(words[3]); count > 0; count--) {
            records.add(record(words[1], partition, in.readLine().split("\t")));
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        KafkaProducer<byte[], byte[]> producer = producer(words, 4);
        for (ProducerRecord<byte[], byte[]> record : records) {
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            OUT.println(one.get().offset() + "\t" + one.get().partition());
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String[] words, int from) {
        String key = String.join("\t", Arrays.asList(words).subList(from, words.length));
        return producers.computeIfAbsent(
            key, unused -> new KafkaProducer<>(properties(words, from), new ByteArraySerializer(), new ByteArraySerializer()));
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, String[] words) throws Exception {
        Long timestamp = words[2].equals("-") ? null : Long.valueOf(words[2]);
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, partition, timestamp, decode(words[0]), decode(words[1]));
        for (int i = 3; i < words.length; i++) {
            int colon = words[i].indexOf(':');
            Object headers = ProducerRecord.class.getMethod("headers").invoke(record);
            headersMethod("add", String.class, byte[].class)
                .invoke(headers, words[i].substring(0, colon), decode(words[i].substring(colon + 1)));
        }
        return record;
    }

    private void close() {
        producers.values().forEach(KafkaProducer::close);
        producers.clear();
    }

    // --- consuming ---

    private void read(String[] words) throws Exception {
        TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
        int wanted = Integer.parseInt(words[4]);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 6)) {
            consumer.assign(Collections.singleton(partition));
            seek(consumer, partition, words[3]);
            Patience patience = new Patience(words[5]);
            while (wanted > 0 && patience.lasts()) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    if (wanted-- > 0) {
                        OUT.println(line(record));
                    }
                }
            }
        }
    }

    private static void seek(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String start) {
        Collection<TopicPartition> one = Collections.singleton(partition);
        if (start.equals("earliest")) {
            consumer.seekToBeginning(one);
        } else if (start.equals("latest")) {
            consumer.seekToEnd(one);
        } else if (start.startsWith("@")) {
            OffsetAndTimestamp found = offsetAt(consumer, partition, start.substring(1));
            consumer.seek(partition, found == null ? consumer.endOffsets(one).get(partition) : found.offset());
        } else {
            consumer.seek(partition, Long.parseLong(start));
        }
    }

    private void offsets(String[] words) {
        TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
        Collection<TopicPartition> one = Collections.singleton(partition);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 3)) {
            OUT.println(consumer.beginningOffsets(one).get(partition) + "\t" + consumer.endOffsets(one).get(partition));
        }
    }

    private void offsetAt(String[] words) {
        TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 4)) {
            OffsetAndTimestamp found = offsetAt(consumer, partition, words[3]);
            OUT.println(found == null ? "-\t-" : found.offset() + "\t" + found.timestamp());
        }
    }

    private static OffsetAndTimestamp offsetAt(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String timestamp) {
        return consumer.offsetsForTimes(Collections.singletonMap(partition, Long.valueOf(timestamp))).get(partition);
    }

    private void drain(String[] words) throws Exception {
        long wanted = Long.parseLong(words[2]);
        long records = 0;
        long bytes = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 4)) {
            List<TopicPartition> all = new ArrayList<>();
            for (PartitionInfo info : consumer.partitionsFor(words[1])) {
                all.add(new TopicPartition(info.topic(), info.partition()));
            }
            long begun = System.nanoTime();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Patience patience = new Patience(words[3]);
            while (records < wanted && patience.lasts()) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    records++;
                    bytes += (record.key() == null ? 0 : record.key().length)
                        + (record.value() == null ? 0 : record.value().length);
                }
            }
            OUT.println(records + "\t" + bytes + "\t" + (System.nanoTime() - begun));
        }
    }

    // --- being a member of a group ---

    private volatile boolean leaving;

    private void group(String[] words) throws Exception {
        CountDownLatch left = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(left)));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(words, 2)) {
            consumer.subscribe(Collections.singletonList(words[1]), new Teller());
            while (!leaving) {
                ConsumerRecords<byte[], byte[]> records = poll(consumer);
                if (!records.isEmpty()) {
                    tell("records_consumed", "partitions", ranges(records));
                    commit(consumer, records);
                }
            }
        }
        tell("shutdown_complete", "partitions", "");
        left.countDown();
    }

    private void leave(CountDownLatch left) {
        leaving = true;
        try {
            left.await();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        StringJoiner told = new StringJoiner(",");
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> read = records.records(partition);
            long next = read.get(read.size() - 1).offset() + 1;
            offsets.put(partition, new OffsetAndMetadata(next));
            told.add(described(partition, ",\"offset\":" + next));
        }
        try {
            consumer.commitSync(offsets);
            tell("offsets_committed", "offsets", told.toString());
        } catch (RuntimeException refused) {
            tell("commit_failed", "offsets", told.toString());
        }
    }

    private static String ranges(ConsumerRecords<byte[], byte[]> records) {
        StringJoiner told = new StringJoiner(",");
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> read = records.records(partition);
            told.add(described(partition, ",\"minOffset\":" + read.get(0).offset()
                + ",\"maxOffset\":" + read.get(read.size() - 1).offset()));
        }
        return told.toString();
    }

    private static String described(TopicPartition partition, String more) {
        return "{\"topic\":\"" + partition.topic() + "\",\"partition\":" + partition.partition() + more + "}";
    }

    private static void tell(String name, String list, String items) {
        OUT.println("{\"name\":\"" + name + "\",\"success\":true,\"" + list + "\":[" + items + "]}");
        OUT.flush();
    }

    private static final class Teller implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("partitions_assigned", "partitions", all(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("partitions_revoked", "partitions", all(partitions));
        }

        private static String all(Collection<TopicPartition> partitions) {
            StringJoiner told = new StringJoiner(",");
            partitions.forEach(partition -> told.add(described(partition, "")));
            return told.toString();
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String[] words, int from) {
        Map<String, Object> properties = properties(words, from);
        properties.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** 0.10 has poll(long) alone, 4.0 removed it (KIP-266). */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        return (ConsumerRecords<byte[], byte[]>) (POLL_TAKES_DURATION
            ? POLL.invoke(consumer, Duration.ofMillis(100))
            : POLL.invoke(consumer, 100L));
    }

    private static final Method POLL = pollMethod();
    private static final boolean POLL_TAKES_DURATION = POLL.getParameterTypes()[0] == Duration.class;

    private static Method pollMethod() {
        try {
            return KafkaConsumer.class.getMethod("poll", Duration.class);
        } catch (NoSuchMethodException old) {
            return Arrays.stream(KafkaConsumer.class.getMethods())
                .filter(method -> method.getName().equals("poll")).findFirst().get();
        }
    }

    // --- words ---

    private static Map<String, Object> properties(String[] words, int from) {
        Map<String, Object> properties = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            properties.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        return properties;
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) throws Exception {
        StringBuilder line = new StringBuilder().append(record.offset()).append('\t').append(record.timestamp())
            .append('\t').append(encode(record.key())).append('\t').append(encode(record.value()));
        for (Object header : headers(record)) {
            Class<?> type = Class.forName("org.apache.kafka.common.header.Header");
            line.append('\t').append(type.getMethod("key").invoke(header))
                .append(':').append(encode((byte[]) type.getMethod("value").invoke(header)));
        }
        return line.toString();
    }

    /** Record headers came with 0.11 (KIP-82). */
    private static Iterable<?> headers(ConsumerRecord<byte[], byte[]> record) throws Exception {
        try {
            return (Iterable<?>) ConsumerRecord.class.getMethod("headers").invoke(record);
        } catch (NoSuchMethodException old) {
            return Collections.emptyList();
        }
    }

    private static Method headersMethod(String name, Class<?>... types) throws Exception {
        return Class.forName("org.apache.kafka.common.header.Headers").getMethod(name, types);
    }

    private static String encode(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().encodeToString(data);
    }

    private static byte[] decode(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word);
    }

    /** Time that runs out. */
    private static final class Patience {
        private final long deadline;

        Patience(String milliseconds) {
            deadline = System.nanoTime() + Long.parseLong(milliseconds) * 1_000_000;
        }

        boolean lasts() {
            return System.nanoTime() < deadline;
        }
    }
}
