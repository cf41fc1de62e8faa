/** As many scheduled tasks as the argument says, a second apart. */
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public class Timers {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        ScheduledExecutorService executor = Executors.newScheduledThreadPool(1);
        for (int i = 1; i <= count; i++) {
            executor.schedule(() -> { }, i, TimeUnit.SECONDS);
        }
        executor.shutdown();
        executor.awaitTermination(2L * count, TimeUnit.SECONDS);
    }
}
