/** A thousand scheduled tasks within as many seconds as the argument says. */
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public class Skip {
    public static void main(String[] arguments) throws Exception {
        long most = Long.parseLong(arguments[0]) * 1000;
        ScheduledExecutorService executor = Executors.newScheduledThreadPool(2);
        for (long i = 0; i < 1000; i++) {
            executor.schedule(() -> { }, i * most / 1000, TimeUnit.MILLISECONDS);
        }
        executor.shutdown();
        executor.awaitTermination(2 * most, TimeUnit.MILLISECONDS);
        System.out.println("done");
    }
}
