// Appends what a producer might send to a log of Apache Kafka's own, and writes what became of it: the bytes of the
// log, or the error that the producer would see. Run with the jars of Apache Kafka 4.3.1 on the class path.
//
// In:  name, Produce version, config (key=value joined by commas, or "-"), hex of the records
// Out: name, hex of the log or name of the error

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Appends {
    static final long NOW = 1_700_000_100_000L;

    static final Time TIME = (Time) Proxy.newProxyInstance(Appends.class.getClassLoader(), new Class<?>[] {Time.class},
        (proxy, method, arguments) -> {
            if (method.getName().equals("milliseconds"))
                return NOW;
            try {
                return method.invoke(Time.SYSTEM, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        });

    static String outcome(String name, short version, String config, String hex) throws Exception {
        File directory = new File(Files.createTempDirectory("appends").toFile(), "t-0");
        directory.mkdir();
        Properties properties = new Properties();
        if (!config.equals("-"))
            for (String entry : config.split(","))
                properties.setProperty(entry.split("=")[0], entry.split("=")[1]);
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(properties), 0, 0, new KafkaScheduler(1),
            new BrokerTopicStats(), TIME, 60_000, new ProducerStateManagerConfig(60_000, false), 60_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
            if (version >= 3)  // 4.3.1 does not know the older ones; its log still does
                ProduceRequest.validateRecords(version, records);
            log.appendAsLeader(records, 0);
            log.flush(false);
            return HexFormat.of().formatHex(Files.readAllBytes(log.logSegments().iterator().next().log().file().toPath()));
        } catch (RecordValidationException error) {
            return Errors.forException(error.invalidException()).name();
        } catch (Exception error) {
            return Errors.forException(error).name();
        } finally {
            log.close();
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = (line + " ").split(" ", -1);
            System.out.println(words[0] + " " + outcome(words[0], Short.parseShort(words[1]), words[2], words[3]));
        }
        System.exit(0);
    }
}
