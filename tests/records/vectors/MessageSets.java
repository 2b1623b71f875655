// Writes message sets of formats v0 and v1, one "name hex" per line. Run with kafka-clients 0.10.2.0 on the class path.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.record.*;

public class MessageSets {
    static final long T = 1_700_000_000_000L;

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void print(String name, byte magic, CompressionType codec, TimestampType type) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), magic, codec, type, 10L, T + 99);
        long time = magic == 0 ? -1 : T;
        builder.appendWithOffset(10, magic == 0 ? -1 : time + 5, utf8("key"), utf8("value"));
        builder.appendWithOffset(11, time, null, utf8("x".repeat(300)));
        builder.appendWithOffset(12, magic == 0 ? -1 : time + 70_000, utf8(""), null);
        builder.appendWithOffset(13, magic == 0 ? -1 : time - 1, utf8("last"), utf8(""));
        ByteBuffer buffer = builder.build().buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    public static void main(String[] arguments) {
        for (CompressionType codec : CompressionType.values()) {
            print("v0_" + codec.name, (byte) 0, codec, TimestampType.NO_TIMESTAMP_TYPE);
            print("v1_" + codec.name, (byte) 1, codec, TimestampType.CREATE_TIME);
            print("v1_append_time_" + codec.name, (byte) 1, codec, TimestampType.LOG_APPEND_TIME);
        }
    }
}
