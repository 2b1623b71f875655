import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * A Kafka Streams application that counts words: StreamsCount PROPERTIES INPUT OUTPUT.
 *
 * The words are the values of INPUT, so they go through a repartition topic; the counts are in a store with a changelog; OUTPUT gets
 * each word with each count that it had. Every line on stdout is something that happened:
 *
 *   state STATE                     restored STORE-PARTITION COUNT
 *   standby STORE-PARTITION         failed EXCEPTION
 */
public class StreamsCount {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1])
            .groupBy((key, word) -> word, Grouped.as("word"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[2]);

        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        streams.setStateListener((now, before) -> say("state", now));
        streams.setGlobalStateRestoreListener(new Restores());
        streams.setStandbyUpdateListener(new Standbys());
        streams.setUncaughtExceptionHandler(error -> {
            say("failed", error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        new CountDownLatch(1).await();
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word);
        }
        System.out.println(line);
    }

    private static final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            say("restored", store + "-" + partition.partition(), count);
        }
    }

    private static final class Standbys implements StandbyUpdateListener {
        @Override
        public void onUpdateStart(TopicPartition partition, String store, long start) {
        }

        @Override
        public void onBatchLoaded(TopicPartition partition, String store, org.apache.kafka.streams.processor.TaskId task, long offset, long size, long end) {
            say("standby", store + "-" + partition.partition());
        }

        @Override
        public void onUpdateSuspended(TopicPartition partition, String store, long offset, long end, SuspendReason reason) {
        }
    }
}
