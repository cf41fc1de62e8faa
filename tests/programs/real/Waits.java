// Java's own ways to spend time. Argument: nominal duration in milliseconds. Lines as lt.h
// describes them. Each item is run once unmeasured with a short wait, so that class loading,
// which takes real time, is not measured.
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.SocketTimeoutException;
import java.time.Year;
import java.time.ZoneOffset;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

public final class Waits {
    interface Wait {
        void run(long ms) throws Exception;
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void item(String name, long ms, Wait wait) throws Exception {
        wait.run(1);
        say("{\"ev\":\"ready\",\"case\":\"" + name + "\"}");
        long start = System.nanoTime();
        wait.run(ms);
        double took = (System.nanoTime() - start) / 1e9;
        say(String.format(java.util.Locale.ROOT,
            "{\"ev\":\"done\",\"case\":\"%s\",\"elapsed\":%.9f,\"expect\":%.9f}",
            name, took, ms / 1e3));
    }

    static void parkNanos(long ms) {
        long end = System.nanoTime() + ms * 1_000_000;
        for (long left; (left = end - System.nanoTime()) > 0;) {
            LockSupport.parkNanos(left);
        }
    }

    static void parkUntil(long ms) {
        long end = System.currentTimeMillis() + ms;
        while (System.currentTimeMillis() < end) {
            LockSupport.parkUntil(end);
        }
    }

    static void objectWait(long ms) throws InterruptedException {
        Object lock = new Object();
        synchronized (lock) {
            lock.wait(ms);
        }
    }

    static void scheduled(long ms) throws Exception {
        ScheduledExecutorService pool = Executors.newScheduledThreadPool(1);
        CountDownLatch five = new CountDownLatch(5);
        long us = Math.max(1, ms * 200);
        pool.scheduleAtFixedRate(five::countDown, us, us, TimeUnit.MICROSECONDS);
        five.await();
        pool.shutdownNow();
    }

    static void future(long ms) throws Exception {
        try {
            new CompletableFuture<Void>().get(ms, TimeUnit.MILLISECONDS);
            throw new IllegalStateException("no timeout");
        } catch (TimeoutException expected) {
            return;
        }
    }

    static void condition(long ms) throws InterruptedException {
        ReentrantLock lock = new ReentrantLock();
        lock.lock();
        lock.newCondition().await(ms, TimeUnit.MILLISECONDS);
        lock.unlock();
    }

    static void socket(long ms) throws Exception {
        try (DatagramSocket s = new DatagramSocket(0, InetAddress.getLoopbackAddress())) {
            s.setSoTimeout((int) ms);
            s.receive(new DatagramPacket(new byte[1], 1));
            throw new IllegalStateException("no timeout");
        } catch (SocketTimeoutException expected) {
            return;
        }
    }

    static void process(long ms) throws Exception {
        Process p = new ProcessBuilder("sleep", "1000").start();
        if (p.waitFor(ms, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("sleep ended");
        }
        p.destroyForcibly().waitFor();
    }

    public static void main(String[] args) throws Exception {
        long ms = Long.parseLong(args[0]);
        item("Thread.sleep", ms, Thread::sleep);
        item("parkNanos", ms, Waits::parkNanos);
        item("parkUntil", ms, Waits::parkUntil);
        item("Object.wait", ms, Waits::objectWait);
        item("Condition.await", ms, Waits::condition);
        item("ScheduledExecutor", ms, Waits::scheduled);
        item("BlockingQueue.poll", ms,
            n -> new LinkedBlockingQueue<String>().poll(n, TimeUnit.MILLISECONDS));
        item("Future.get", ms, Waits::future);
        item("SoTimeout", ms, Waits::socket);
        item("Process.waitFor", ms, Waits::process);
        say("{\"ev\":\"year\",\"year\":" + Year.now(ZoneOffset.UTC) + "}");
        say("{\"ev\":\"end\"}");
    }
}
