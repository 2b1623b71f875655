// Writes v2 batches with Kafka's own classes, one "name hex" per line. Run with kafka-clients 4.3.1 on the class path.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class Batches {
    static final long T = 1_700_000_000_000L;

    // More than one block of snappy (32 KiB) and of lz4 (64 KiB).
    static final SimpleRecord LARGE = new SimpleRecord(T, null, utf8("moldau".repeat(20_000)));

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static SimpleRecord[] records() {
        Header[] headers = {new RecordHeader("h\u00e9ader", utf8("value")), new RecordHeader("", null)};
        return new SimpleRecord[] {
            new SimpleRecord(T + 5, utf8("key"), utf8("value"), headers),
            new SimpleRecord(T, null, utf8("x".repeat(300))),
            new SimpleRecord(T + 70_000, utf8(""), null),
            new SimpleRecord(T - 1, utf8("last"), utf8("")),
        };
    }

    static void print(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static MemoryRecords built(Compression codec, TimestampType type, long producerId, boolean transactional) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), RecordBatch.CURRENT_MAGIC_VALUE,
            codec, type, 0L, T + 99, producerId, (short) (producerId < 0 ? -1 : 3), producerId < 0 ? -1 : 7,
            transactional, -1);
        for (SimpleRecord record : records())
            builder.append(record);
        return builder.build();
    }

    public static void main(String[] arguments) {
        for (CompressionType codec : CompressionType.values())
            print(codec.name, built(Compression.of(codec).build(), TimestampType.CREATE_TIME, -1, false));
        for (CompressionType codec : CompressionType.values())
            if (codec != CompressionType.NONE)
                print("large_" + codec.name, MemoryRecords.withRecords(Compression.of(codec).build(), LARGE));
        print("idempotent", built(Compression.NONE, TimestampType.CREATE_TIME, 42, false));
        print("transactional", built(Compression.NONE, TimestampType.CREATE_TIME, 42, true));
        print("log_append_time", built(Compression.NONE, TimestampType.LOG_APPEND_TIME, -1, false));
        print("marker_commit", MemoryRecords.withEndTransactionMarker(12, T, 4, 42, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 9)));
        print("marker_abort", MemoryRecords.withEndTransactionMarker(12, T, 4, 42, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 9)));
    }
}
