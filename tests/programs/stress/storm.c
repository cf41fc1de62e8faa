/*
 * storm SEED SCALE STEPS: threads that do random things, and check their readings of time.
 *
 * Each of WORKERS threads takes one action after another from its own generator, so that a seed
 * gives every thread the same actions again. SCALE is how fast the clock runs at the beginning
 * (10: 10, 1/10: 0.1): waits take as long in real time at every rate. STEPS is 1 where somebody
 * sets the wall clock meanwhile.
 *
 *     {"ev":"ready","pid":1}
 *     {"ev":"finding","what":"early","in":"poll","thread":2,"n":71,"a":1,"b":2}
 *     {"ev":"count","each":[71,...],"in":["poll",...]}     the answer to a line on stdin
 *     {"ev":"end","actions":1000,"waits":500,"interrupted":20,"jumps":3,"children":9}
 *
 * It ends when its stdin is closed: status 0, or 1 where there was a finding. What is checked:
 * no clock goes back, for any thread or process; no wait or timer is early; a periodic timer tells
 * of each expiry once; EINTR only where a handler ran, or where the kernel too knows no
 * other end; children, threads and files are as natively.
 *
 * storm child CODE AFTER_NS STEPS: a child by exec, with threads; time has not gone back since AFTER_NS.
 */
#include "storm_waits.h"

/* ------------------------------------------------------------------------------- other actions */

static void some_reads(void)
{
	for (unsigned i = below(200); i > 0; i--)
		see(i % NSEEN);
	lt_ns coarse = lt_now(CLOCK_MONOTONIC_COARSE), fine = mono();
	if (coarse > fine)
		finding("the coarse clock is ahead", coarse, fine);
	lt_ns used = lt_now(CLOCK_THREAD_CPUTIME_ID), more = lt_now(CLOCK_THREAD_CPUTIME_ID);
	if (more < used)
		finding("CPU time back", used, more);
}

static void some_timer(void)
{
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	lt_ns ns = some_ns() + 1;
	struct itimerspec it = { { 0, 0 }, lt_ts(ns) }, left;
	timer_t timer;
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &none, &timer) == 0);
	lt_ns t0 = mono();
	LT_CHECK(timer_settime(timer, 0, &it, NULL) == 0);
	lt_ns t1 = mono();
	for (int i = 0; i < 3; i++) {
		lt_ns before = mono();
		LT_CHECK(timer_gettime(timer, &left) == 0);
		lt_ns after = mono(), rest = left.it_value.tv_sec * LT_SEC + left.it_value.tv_nsec;
		if (rest > ns || (rest == 0 && after - t0 < ns))
			finding("rest of a timer", rest, after - t0);
		if (rest > 0 && before - t1 > ns)
			finding("a timer that is over has a rest", rest, before - t1);
		lt_sleep(ns / 2);
	}
	timer_delete(timer);
}

/* Waits until expiries of this thread's series have come, by its descriptor or, without one, by its signal. Returns how many. */
static lt_ns taken(int fd)
{
	uint64_t several;
	siginfo_t info;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SERIES);
	while ((fd < 0 ? sigwaitinfo(&set, &info) : read(fd, &several, sizeof several)) < 0)
		LT_CHECK(errno == EINTR);
	return fd < 0 ? 1 + (lt_ns)info.si_overrun : (lt_ns)several;
}

static void end_series(int fd)
{
	const struct timespec at_once = { 0, 0 };
	const struct itimerspec never = { { 0, 0 }, { 0, 0 } };
	sigset_t set;
	if (fd >= 0) {
		close(fd);
		return;
	}
	LT_CHECK(timer_settime(self->series, 0, &never, NULL) == 0);
	sigemptyset(&set);
	sigaddset(&set, SERIES);
	while (sigtimedwait(&set, NULL, &at_once) > 0 || errno == EINTR)
		;
}

/* What a periodic timer tells are all its expiries, each once, though some are not taken yet at a change. */
static void some_series(void)
{
	int fd = below(2) ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC) : -1;
	lt_ns period = (lt_ns)(100e3 * scale) + some_ns() / 4, begun = mono(), count = 0;
	struct itimerspec it = { lt_ts(period), lt_ts(begun + period) };
	if (fd >= 0)
		LT_CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &it, NULL) == 0);
	else
		LT_CHECK(timer_settime(self->series, TIMER_ABSTIME, &it, NULL) == 0);
	for (unsigned i = 1 + below(6); i > 0; i--) {
		if (below(2))
			some_wait();
		self->in = fd < 0 ? "series" : "series by descriptor";
		lt_ns due = (mono() - begun) / period;
		count += taken(fd);
		/* What a change has told again does not stand for what came after the change; and the clock may leap before the
		 * process has been told, which on a busy machine takes some time: more than a second's expiries are waited for. */
		for (lt_ns more = 0; count < due && more * period < (lt_ns)(4e9 * scale); more++)
			count += taken(fd);
		/* One may be early where the process got no processor for long before a change. It does not come again when it is due. */
		lt_ns passed = (mono() - begun) / period;
		for (int early = 0; count > passed && early < 20; early++) {
			for (lt_ns now; (now = mono()) < begun + count * period;)
				lt_sleep(begun + count * period - now);
			count += taken(fd);
			passed = (mono() - begun) / period;
		}
		if (count < due || count > passed) {
			finding(count < due ? "expiries lost" : "too many expiries", count, passed);
			finding("their interval, and those that were due", period, due);
			break;
		}
	}
	end_series(fd);
}

/* Signals at this thread, by a timer of its own. */
static void rain(void)
{
	static const double every[] = { 0, 100e3, 1e6, 10e6 };
	static atomic_int one; /* a single thread at a time has them every 100 us */
	static __thread int mine;
	unsigned which = below(4);
	if (mine)
		atomic_store(&one, mine = 0);
	if (which == 1 && !(mine = !atomic_exchange(&one, 1)))
		which = 2;
	lt_ns ns = (lt_ns)(every[which] * scale);
	struct itimerspec it = { lt_ts(ns), lt_ts(ns) };
	LT_CHECK(timer_settime(self->rain, 0, &it, NULL) == 0);
}

static void poke(void)
{
	pthread_kill(workers[below(WORKERS)].thread, below(2) ? SIGUSR1 : SIGUSR2);
	if (below(4) == 0)
		sem_post(&posted);
}

/* Leaves a wait from a handler, by a jump. */
static void jump(void)
{
	lt_ns ns = some_ns() + 1000;
	struct itimerspec it = { { 0, 0 }, lt_ts(ns) };
	sigset_t before, after;
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	if (sigsetjmp(self->jump, 1) == 0) {
		LT_CHECK(timer_settime(self->single, 0, &it, NULL) == 0);
		self->may_jump = 1;
		for (int i = 0; i < 3; i++) {
			struct timespec t = lt_ts(ns);
			if (i % 2)
				syscall(SYS_ppoll, NULL, 0, &t, NULL, 0);
			else
				syscall(SYS_nanosleep, &t, NULL);
		}
		self->may_jump = 0;
	} else {
		atomic_fetch_add(&all->jumps, 1);
	}
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	if (memcmp(&before, &after, 8))
		finding("signal mask after a jump", *(lt_ns *)&before, *(lt_ns *)&after);
	mono();
}

static void own_stack(void)
{
	size_t size = 16384u << below(3);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t none = { .ss_flags = SS_DISABLE }, old,
		stack = { .ss_sp = memory, .ss_size = size };
	LT_CHECK(memory != MAP_FAILED);
	LT_CHECK(sigaltstack(&stack, &old) == 0);
	if (!(old.ss_flags & SS_DISABLE))
		finding("somebody else's stack", (lt_ns)(uintptr_t)old.ss_sp, old.ss_flags);
	pthread_kill(pthread_self(), SIGUSR1);
	some_wait();
	LT_CHECK(sigaltstack(&none, &old) == 0);
	if (old.ss_sp != memory)
		finding("another stack", (lt_ns)(uintptr_t)memory, (lt_ns)(uintptr_t)old.ss_sp);
	munmap(memory, size);
}

static void library(void)
{
	static const char *names[] = { "libm.so.6", "libresolv.so.2", "librt.so.1", "libutil.so.1" };
	void *handle = dlopen(names[below(4)], RTLD_NOW);
	mono();
	if (handle)
		dlclose(handle);
}

/* A file is never older than an earlier reading of the coarse clock. */
static void file(void)
{
	char name[64];
	struct stat seen;
	snprintf(name, sizeof name, "storm-%d-%d", getpid(), self->number);
	lt_ns before = lt_now(CLOCK_REALTIME_COARSE);
	int fd = openat(files, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	LT_CHECK(fd >= 0);
	LT_CHECK(fstat(fd, &seen) == 0);
	lt_ns made = seen.st_mtim.tv_sec * LT_SEC + seen.st_mtim.tv_nsec;
	if (made < before && !steps)
		finding("a file older than the clock", before, made);
	close(fd);
	unlinkat(files, name, 0);
}

/* ------------------------------------------------------------------------- threads and children */

struct burst { struct self self; pthread_barrier_t *barrier; int with_stack; };

static void *short_life(void *argument)
{
	struct burst *burst = argument;
	self = &burst->self;
	pthread_barrier_wait(burst->barrier);
	if (burst->with_stack)
		own_stack();
	lt_sleep((lt_ns)(1e6 * scale));
	mono();
	return NULL;
}

static void threads(void)
{
	struct burst each[MOST_THREADS];
	pthread_barrier_t barrier;
	unsigned n = 1 + below(MOST_THREADS), made = 0;
	pthread_barrier_init(&barrier, NULL, n);
	for (; made < n; made++) {
		memset(&each[made], 0, sizeof each[made]);
		each[made].self.number = self->number;
		each[made].self.in = "threads";
		each[made].self.random = draw();
		each[made].barrier = &barrier;
		each[made].with_stack = (int)below(2);
		each[made].self.thread = lt_thread(short_life, &each[made]);
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(each[i].self.thread, NULL);
	pthread_barrier_destroy(&barrier);
}

static void expect_status(pid_t pid, int expected)
{
	int status;
	LT_CHECK(pid > 0);
	while (waitpid(pid, &status, 0) < 0)
		LT_CHECK(errno == EINTR);
	if (status != expected)
		finding("status of a child", expected, status);
	atomic_fetch_add(&all->children, 1);
}

/* The arguments of a child by exec; made before vfork, which shares the memory. */
struct words { char code[8], after[24], steps[4]; char *argv[6]; };

/* Executes the program anew. A status above 128 tells why the kernel refuses it. */
static void become(struct words *words)
{
	execv(own_path, words->argv);
	_exit(128 + errno);
}

static void fill(struct words *words, int code)
{
	snprintf(words->code, sizeof words->code, "%d", code);
	snprintf(words->after, sizeof words->after, "%lld", mono());
	snprintf(words->steps, sizeof words->steps, "%d", !!steps);
	words->argv[0] = own_path, words->argv[1] = "child";
	words->argv[2] = words->code, words->argv[3] = words->after;
	words->argv[4] = words->steps, words->argv[5] = NULL;
}

static void forked(void)
{
	int code = (int)below(100) + 10, how = (int)below(4);
	struct words words;
	fill(&words, code);
	pid_t pid = fork();
	if (pid == 0) {
		for (unsigned i = below(4); i > 0; i--)
			some_wait();
		self->in = "forked";
		if (how == 1)
			raise(SIGKILL);
		if (how == 3)
			become(&words);
		mono();
		_exit(code);
	}
	expect_status(pid, how == 1 ? SIGKILL : code << 8);
}

static void spawned(void)
{
	struct words words;
	int code = (int)below(100) + 10;
	pid_t pid = 0;
	fill(&words, code);
	if (below(2))
		LT_CHECK(posix_spawn(&pid, own_path, NULL, NULL, words.argv, environ) == 0);
	else if ((pid = vfork()) == 0)
		become(&words);
	expect_status(pid, code << 8);
}

static int on_small_stack(void *argument)
{
	struct timespec t = { 0, 1000 };
	syscall(SYS_nanosleep, &t, NULL);
	syscall(SYS_close, (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY));
	return (int)(intptr_t)argument;
}

static void small_stack(void)
{
	size_t size = 8192u << below(4);
	int shared = below(2) ? CLONE_VM | CLONE_VFORK : 0, code = (int)below(100) + 10;
	char *memory = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	LT_CHECK(memory != MAP_FAILED && mprotect(memory, 4096, PROT_NONE) == 0);
	pid_t pid = clone(on_small_stack, memory + 4096 + size, shared | SIGCHLD,
			  (void *)(intptr_t)code);
	expect_status(pid, code << 8);
	munmap(memory, size + 4096);
}

/* ---------------------------------------------------------------------------------------- main */

static const struct action { const char *name; void (*run)(void); unsigned weight; } ACTIONS[] = {
	{ "wait", some_wait, 60 }, { "reads", some_reads, 20 }, { "timer", some_timer, 8 },
	{ "series", some_series, 4 }, { "rain", rain, 4 }, { "poke", poke, 10 }, { "jump", jump, 8 },
	{ "own stack", own_stack, 4 }, { "library", library, 2 }, { "file", file, 6 },
	{ "threads", threads, 2 }, { "forked", forked, 4 }, { "spawned", spawned, 3 },
	{ "small stack", small_stack, 3 },
};
#define NACTIONS (sizeof ACTIONS / sizeof *ACTIONS)

static void one_action(void)
{
	unsigned sum = 0, i = 0;
	for (unsigned j = 0; j < NACTIONS; j++)
		sum += ACTIONS[j].weight;
	for (unsigned at = below(sum); at >= ACTIONS[i].weight; i++)
		at -= ACTIONS[i].weight;
	self->in = ACTIONS[i].name;
	ACTIONS[i].run();
	self->n++;
	atomic_fetch_add(&all->actions, 1);
}

static timer_t own_timer(int sig)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig };
	timer_t timer;
	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	LT_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	return timer;
}

static void *work(void *argument)
{
	sigset_t both;
	self = argument;
	self->rain = own_timer(SIGUSR1);
	self->single = own_timer(SIGUSR2);
	self->series = own_timer(SERIES);
	sigemptyset(&both);
	sigaddset(&both, SIGUSR1);
	sigaddset(&both, SIGUSR2);
	while (!atomic_load(&all->begun)) /* then the target of each signal exists */
		sched_yield();
	pthread_sigmask(SIG_UNBLOCK, &both, NULL);
	while (!atomic_load(&all->stop))
		one_action();
	pthread_sigmask(SIG_BLOCK, &both, NULL); /* the others may still send signals */
	return NULL;
}

static void answer(void)
{
	char each[256], in[512];
	int a = 0, b = 0;
	for (int i = 0; i < WORKERS; i++) {
		a += snprintf(each + a, sizeof each - (size_t)a, "%s%ld", i ? "," : "", workers[i].n);
		b += snprintf(in + b, sizeof in - (size_t)b, "%s\"%s\"", i ? "," : "", workers[i].in);
	}
	lt_emit("count", ",\"each\":[%s],\"in\":[%s]", each, in);
}

static int child(int code, lt_ns after)
{
	struct self own = { .in = "child", .random = (uint64_t)code };
	lt_ns now = lt_now(CLOCK_MONOTONIC), then;
	self = &own;
	all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	scale = 0.1;
	lt_handle(SIGUSR1, on_signal, SA_ONSTACK);
	if (code % 4 == 0)
		threads();
	lt_sleep(1000);
	then = lt_now(CLOCK_MONOTONIC);
	if (now < after || then < now + 1000)
		return 1;
	return code;
}

int main(int argc, char **argv)
{
	char line[64];
	if (argc == 5 && !strcmp(argv[1], "child")) {
		steps = atoi(argv[4]);
		return child(atoi(argv[2]), atoll(argv[3]));
	}
	if (argc != 4) {
		fprintf(stderr, "usage: storm SEED SCALE STEPS\n");
		return 96;
	}
	uint64_t seed = strtoull(argv[1], NULL, 10);
	scale = atof(argv[2]);
	steps = atoi(argv[3]);
	own_path = realpath("/proc/self/exe", NULL);
	all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	files = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	LT_CHECK(all != MAP_FAILED && files >= 0 && sem_init(&posted, 0, 0) == 0);
	handler_flags = SA_ONSTACK | (seed % 2 ? SA_RESTART : 0);
	lt_handle(SIGUSR1, on_signal, handler_flags);
	lt_handle(SIGUSR2, on_jump, handler_flags);
	lt_block(SIGUSR1);
	lt_block(SIGUSR2);
	lt_block(SIGRTMAX);
	lt_block(SERIES);
	lt_block(ONCE);
	lt_block(SIGALRM);
	for (int i = 0; i < WORKERS; i++) {
		workers[i].number = i;
		workers[i].in = "start";
		workers[i].random = seed * 1000003 + (uint64_t)i;
		workers[i].thread = lt_thread(work, &workers[i]);
	}
	atomic_store(&all->begun, 1);
	lt_emit("ready", ",\"pid\":%d", getpid());
	while (fgets(line, sizeof line, stdin))
		answer();
	atomic_store(&all->stop, 1);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	lt_emit("end", ",\"actions\":%ld,\"waits\":%ld,\"interrupted\":%ld,\"jumps\":%ld,\"children\":%ld",
		all->actions, all->waits, all->interrupted, all->jumps, all->children);
	return all->findings ? 1 : 0;
}
