/* Behaviour that the preloaded timers must not change: values, errors, signals, cancellation. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

static int64_t nanos(struct timespec t) { return t.tv_sec * 1000000000 + t.tv_nsec; }

static int64_t preloaded(clockid_t clock)
{
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    return nanos(t);
}

/* The kernel's own answer, which no library can replace. */
static int64_t kernels(clockid_t clock)
{
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return nanos(t);
}

static void clocks(void)
{
    const clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME,
        CLOCK_MONOTONIC_COARSE, CLOCK_PROCESS_CPUTIME_ID};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t off = INT64_MAX;
        for (int turn = 0; turn < 2000; turn++) {
            int64_t before = kernels(all[i]), ours = preloaded(all[i]), after = kernels(all[i]);
            int64_t outside = ours < before ? before - ours : ours > after ? ours - after : 0;
            if (outside < off)
                off = outside;
        }
        if (off > 100000) {
            printf("clock %d is %lld ns off\n", all[i], (long long)off);
            exit(1);
        }
    }
    struct timeval val;
    struct timespec t;
    time_t told = 0, before = kernels(CLOCK_REALTIME) / 1000000000;
    CHECK(gettimeofday(&val, NULL) == 0);
    time_t now = time(&told);
    CHECK(timespec_get(&t, TIME_UTC) == TIME_UTC);
    time_t after = kernels(CLOCK_REALTIME) / 1000000000;
    CHECK(val.tv_sec >= before - 1 && val.tv_sec <= after + 1);
    CHECK(now == told && now >= before - 1 && now <= after + 1);
    CHECK(t.tv_sec >= before - 1 && t.tv_sec <= after + 1);
    CHECK(timespec_get(&t, 12345) == 0);
    errno = 0;
    CHECK(clock_gettime(12345, &t) == -1 && errno == EINVAL);
}

/* Some programs look at errno after calls that went well. */
static void errno_is_kept(void)
{
    struct timespec t;
    struct timeval val;
    errno = ENOTTY;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0 && errno == ENOTTY);
    CHECK(gettimeofday(&val, NULL) == 0 && errno == ENOTTY);
    CHECK(time(NULL) > 0 && errno == ENOTTY);
    CHECK(usleep(1000) == 0 && errno == ENOTTY);
    CHECK(nanosleep(&(struct timespec){0, 1000000}, NULL) == 0 && errno == ENOTTY);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL) == 0);
    CHECK(errno == ENOTTY);
}

static void sleeps(void)
{
    int64_t start = preloaded(CLOCK_MONOTONIC);
    CHECK(usleep(3000) == 0 && preloaded(CLOCK_MONOTONIC) - start >= 3000000);
    start = preloaded(CLOCK_MONOTONIC);
    CHECK(nanosleep(&(struct timespec){0, 2000000}, NULL) == 0);
    CHECK(preloaded(CLOCK_MONOTONIC) - start >= 2000000);
    const clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct timespec until;
        clock_gettime(all[i], &until);
        until.tv_nsec += 5000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        CHECK(clock_nanosleep(all[i], TIMER_ABSTIME, &until, NULL) == 0);
        CHECK(preloaded(all[i]) >= nanos(until));
        CHECK(clock_nanosleep(all[i], TIMER_ABSTIME, &until, NULL) == 0);
        CHECK(clock_nanosleep(all[i], TIMER_ABSTIME, &(struct timespec){0, 0}, NULL) == 0);
        CHECK(clock_nanosleep(all[i], 0, &(struct timespec){0, 1}, NULL) == 0);
    }
    start = preloaded(CLOCK_MONOTONIC);
    CHECK(sleep(1) == 0 && preloaded(CLOCK_MONOTONIC) - start >= 1000000000);
    start = preloaded(CLOCK_MONOTONIC);
    CHECK(thrd_sleep(&(struct timespec){0, 2000000}, NULL) == 0);
    CHECK(preloaded(CLOCK_MONOTONIC) - start >= 2000000);
    CHECK(thrd_sleep(&(struct timespec){0, -1}, NULL) == -2 && sleep(0) == 0);
    CHECK(usleep(0) == 0 && nanosleep(&(struct timespec){0, 0}, NULL) == 0);
    CHECK(nanosleep(&(struct timespec){0, 1000000000}, NULL) == -1 && errno == EINVAL);
    CHECK(nanosleep(&(struct timespec){0, -1}, NULL) == -1 && errno == EINVAL);
    CHECK(nanosleep(&(struct timespec){-1, 0}, NULL) == -1 && errno == EINVAL);
    CHECK(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &(struct timespec){0, 0}, NULL) == EINVAL);
}

static void handler(int number) { (void)number; }

static pthread_t waiter, sender;
static pid_t waiter_tid;

static char state(pid_t thread)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    /* The state follows the name, which is in parentheses. */
    char *end = strrchr(text, ')');
    CHECK(end != NULL);
    return end[2];
}

/* Sends SIGALRM to the waiter once it has slept for 50 ms. A timer could go off before the sleep begins. */
static void *send_when_asleep(void *unused)
{
    while (state(waiter_tid) != 'S')
        sched_yield();
    usleep(50000);
    CHECK(pthread_kill(waiter, SIGALRM) == 0);
    return unused;
}

static void begin_sender(void)
{
    CHECK(pthread_create(&sender, NULL, send_when_asleep, NULL) == 0);
}

#define INTERRUPTED(what) \
    do { \
        begin_sender(); \
        CHECK(what); \
        CHECK(pthread_join(sender, NULL) == 0); \
    } while (0)

static void signals(void)
{
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    struct timespec left = {0, 0};
    waiter = pthread_self();
    waiter_tid = (pid_t)syscall(SYS_gettid);
    INTERRUPTED(nanosleep(&(struct timespec){30, 0}, &left) == -1 && errno == EINTR);
    CHECK(left.tv_sec >= 15 && nanos(left) < 29960000000);
    INTERRUPTED(clock_nanosleep(CLOCK_REALTIME, 0, &(struct timespec){30, 0}, &left) == EINTR);
    CHECK(left.tv_sec >= 15 && nanos(left) < 29960000000);
    INTERRUPTED(usleep(30000000) == -1 && errno == EINTR);
    unsigned int rest = 0;
    INTERRUPTED((rest = sleep(30)) > 0);
    CHECK(rest >= 15 && rest <= 29);
    INTERRUPTED(thrd_sleep(&(struct timespec){30, 0}, &left) == -1);
    CHECK(left.tv_sec >= 15 && nanos(left) < 29960000000);
    INTERRUPTED(poll(NULL, 0, 30000) == -1 && errno == EINTR);
    struct timeval far = {30, 0};
    INTERRUPTED(select(0, NULL, NULL, NULL, &far) == -1 && errno == EINTR);
    CHECK(far.tv_sec >= 15 && far.tv_sec <= 29);
}

/* Timeouts and events of poll, select and epoll. */
static void events(void)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    struct pollfd fd = {.fd = ends[0], .events = POLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    for (int ready = 0; ready < 2; ready++) {
        const struct timespec ms2 = {0, 2000000};
        for (int kind = 0; kind < 7; kind++) {
            int64_t start = preloaded(CLOCK_MONOTONIC), got = -2;
            /* Of a minute something remains, however late a ready descriptor is found. */
            struct timeval timeout = {ready ? 60 : 0, 2000};
            fd_set set;
            FD_ZERO(&set);
            FD_SET(ends[0], &set);
            errno = ENOTTY;
            switch (kind) {
            case 0: got = poll(&fd, 1, 2); break;
            case 1: got = ppoll(&fd, 1, &ms2, NULL); break;
            case 2: got = select(ends[0] + 1, &set, NULL, NULL, &timeout); break;
            case 3: got = pselect(ends[0] + 1, &set, NULL, NULL, &ms2, NULL); break;
            case 4: got = epoll_wait(epoll, &event, 1, 2); break;
            case 5: got = epoll_pwait(epoll, &event, 1, 2, NULL); break;
            case 6: got = epoll_pwait2(epoll, &event, 1, &ms2, NULL); break;
            }
            CHECK(got == ready && errno == ENOTTY);
            CHECK(ready || preloaded(CLOCK_MONOTONIC) - start >= 2000000);
            if (kind == 2 || kind == 3)
                CHECK(!!FD_ISSET(ends[0], &set) == ready);
            if (kind == 2)
                CHECK(ready ? timeout.tv_sec > 0 || timeout.tv_usec > 0
                            : timeout.tv_sec == 0 && timeout.tv_usec == 0);
        }
        CHECK(write(ends[1], "x", 1) == 1);
    }
    CHECK(ppoll(&fd, 1, &(struct timespec){0, -1}, NULL) == -1 && errno == EINVAL);
    CHECK(select(0, NULL, NULL, NULL, &(struct timeval){-1, 0}) == -1 && errno == EINVAL);
    CHECK(poll(&fd, 1, 0) == 1 && poll(&fd, 1, -1) == 1 && epoll_wait(epoll, &event, 1, -1) == 1);
    CHECK(epoll_wait(-1, &event, 1, 2) == -1 && errno == EBADF);
    close(ends[0]), close(ends[1]), close(epoll);
}

static void *sleep_long(void *how)
{
    struct timeval minute = {60, 0};
    switch (*(const char *)how) {
    case 'u': usleep(60000000); break;
    case 's': sleep(60); break;
    case 'p': poll(NULL, 0, 60000); break;
    default: select(0, NULL, NULL, NULL, &minute);
    }
    return NULL;
}

static void cancellation(void)
{
    for (const char *how = "uspc"; *how; how++) {
        pthread_t thread;
        void *result = NULL;
        CHECK(pthread_create(&thread, NULL, sleep_long, (void *)how) == 0);
        usleep(30000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
}

static void children(void)
{
    pid_t child = fork();
    if (child == 0) {
        clocks();
        usleep(1000);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    errno_is_kept();
    clocks();
    sleeps();
    signals();
    events();
    cancellation();
    children();
    puts("good");
    return 0;
}
