// Reads "name hex" lines of v2 batches, writes "name_v0 hex" and "name_v1 hex". Run with kafka-clients 3.9.2, the last
// one that converts to old formats, on the class path. The first argument is the offset that a consumer asked for.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Time;

public class DownConversion {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            for (byte magic = 0; magic < 2; magic++)
                System.out.println(words[0] + "_v" + magic + " " + converted(words[1], magic, Long.parseLong(arguments[0])));
        }
    }

    static String converted(String hex, byte magic, long firstOffset) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        try {
            ByteBuffer buffer = records.downConvert(magic, firstOffset, Time.SYSTEM).records().buffer().duplicate();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }
}
