// The hang of JVMs under libfaketime: Thread.sleep, Object.wait and parkNanos that never end when
// MONOTONIC and the clock of the condition variable disagree. Argument: milliseconds.
import java.util.concurrent.locks.LockSupport;

public final class Hang {
    public static void main(String[] args) throws Exception {
        long ms = Long.parseLong(args[0]);
        Object lock = new Object();
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                try {
                    for (int n = 0; n < 5; n++) {
                        Thread.sleep(ms);
                        synchronized (lock) {
                            lock.wait(ms);
                        }
                        LockSupport.parkNanos(ms * 1_000_000);
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            threads[i].start();
        }
        for (Thread t : threads) {
            t.join();
        }
        System.out.println("{\"ev\":\"year\",\"year\":"
            + java.time.Year.now(java.time.ZoneOffset.UTC) + "}");
        System.out.println("{\"ev\":\"end\"}");
    }
}
