// A task every 50 ms and one after 3 s, by the scheduler of the JVM. The loader's classes are
// used once before, so that class loading is not measured.
import java.util.Locale;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public final class Ticks {
    static synchronized void say(String form, Object... values) {
        System.out.println(String.format(Locale.ROOT, form, values));
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        ScheduledExecutorService scheduler = Executors.newScheduledThreadPool(2);
        scheduler.schedule(() -> { }, 1, TimeUnit.MILLISECONDS).get();
        say("{\"ev\":\"begin\"}");
        long begun = System.nanoTime();
        int[] count = {0};
        scheduler.scheduleAtFixedRate(() -> {
            double late = (System.nanoTime() - begun) / 1e9 - ++count[0] * 0.05;
            say("{\"ev\":\"tick\",\"thread\":\"a\",\"n\":%d,\"late\":%.6f}", count[0], late);
        }, 50, 50, TimeUnit.MILLISECONDS);
        scheduler.schedule(() -> {
            say("{\"ev\":\"empty\",\"after\":%.6f}", (System.nanoTime() - begun) / 1e9);
        }, 3, TimeUnit.SECONDS);
    }
}
