/*
 * poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2: to the timeout's end, and
 * ended half way by data; the raw calls write the remaining time back.
 */
#include "../lt.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

struct pipe { int r, w; const struct lt *lt; };

static struct pipe silent(void)
{
	int p[2];
	LT_CHECK(pipe(p) == 0);
	return (struct pipe){ p[0], p[1], NULL };
}

static void *write_later(void *arg)
{
	struct pipe *p = arg;
	lt_await_start(p->lt);
	lt_sleep(p->lt->expect);
	LT_CHECK(write(p->w, "x", 1) == 1);
	return NULL;
}

/* A pipe into which a thread writes when half the nominal time has passed. */
static struct pipe half_way(struct lt *lt)
{
	struct pipe *p = malloc(sizeof *p);
	*p = silent();
	p->lt = lt;
	lt->expect = lt->nominal / 2;
	lt_thread(write_later, p);
	return *p;
}

static int ms(struct lt *lt) { return (int)(lt->nominal / 1000000); }

static void run_poll(struct lt *lt, struct pipe p)
{
	struct pollfd f = { .fd = p.r, .events = POLLIN };
	LT_READY(lt);
	LT_CALL(lt, poll(&f, 1, ms(lt)));
	lt_done(lt, ",\"same_revents\":%d", f.revents);
}

static void run_ppoll(struct lt *lt, struct pipe p)
{
	struct pollfd f = { .fd = p.r, .events = POLLIN };
	struct timespec t = lt_ts(lt->nominal);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_ppoll, &f, 1, &t, NULL, 8));
	lt_done(lt, ",\"remaining\":%.9f,\"same_revents\":%d", lt_ts_sec(t), f.revents);
}

static void run_ppoll_libc(struct lt *lt, struct pipe p)
{
	struct pollfd f = { .fd = p.r, .events = POLLIN };
	struct timespec t = lt_ts(lt->nominal);
	LT_READY(lt);
	LT_CALL(lt, ppoll(&f, 1, &t, NULL));
	lt_done(lt, NULL);
}

static void run_select(struct lt *lt, struct pipe p)
{
	struct timeval t = lt_tv(lt->nominal);
	fd_set s;
	FD_ZERO(&s);
	FD_SET(p.r, &s);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_select, p.r + 1, &s, NULL, NULL, &t));
	lt_done(lt, ",\"remaining\":%.9f,\"same_set\":%d", lt_tv_sec(t), FD_ISSET(p.r, &s) != 0);
}

static void run_select_libc(struct lt *lt, struct pipe p)
{
	struct timeval t = lt_tv(lt->nominal);
	fd_set s;
	FD_ZERO(&s);
	FD_SET(p.r, &s);
	LT_READY(lt);
	LT_CALL(lt, select(p.r + 1, &s, NULL, NULL, &t));
	lt_done(lt, ",\"same_set\":%d", FD_ISSET(p.r, &s) != 0);
}

static void run_pselect6(struct lt *lt, struct pipe p)
{
	struct timespec t = lt_ts(lt->nominal);
	fd_set s;
	FD_ZERO(&s);
	FD_SET(p.r, &s);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_pselect6, p.r + 1, &s, NULL, NULL, &t, NULL));
	lt_done(lt, ",\"remaining\":%.9f,\"same_set\":%d", lt_ts_sec(t), FD_ISSET(p.r, &s) != 0);
}

static int epoll_of(struct pipe p)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 4711 };
	int ep = epoll_create1(0);
	LT_CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, p.r, &e) == 0);
	return ep;
}

static void run_epoll_wait(struct lt *lt, struct pipe p)
{
	struct epoll_event e = { 0 };
	int ep = epoll_of(p);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_epoll_wait, ep, &e, 1, ms(lt)));
	lt_done(lt, ",\"same_data\":%llu", (unsigned long long)e.data.u64);
}

static void run_epoll_pwait(struct lt *lt, struct pipe p)
{
	struct epoll_event e = { 0 };
	int ep = epoll_of(p);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_epoll_pwait, ep, &e, 1, ms(lt), NULL, 8));
	lt_done(lt, ",\"same_data\":%llu", (unsigned long long)e.data.u64);
}

static void run_epoll_pwait2(struct lt *lt, struct pipe p)
{
	struct epoll_event e = { 0 };
	struct timespec t = lt_ts(lt->nominal);
	int ep = epoll_of(p);
	LT_READY(lt);
	LT_CALL(lt, syscall(SYS_epoll_pwait2, ep, &e, 1, &t, NULL, 8));
	lt_done(lt, ",\"same_data\":%llu,\"same_timeout\":%d", (unsigned long long)e.data.u64,
		lt_ts_sec(t) == lt_sec(lt->nominal)); /* not written back */
}

static void do_poll_null(struct lt *lt)
{
	LT_READY(lt);
	LT_CALL(lt, poll(NULL, 0, ms(lt)));
	lt_done(lt, NULL);
}

static void do_select_null(struct lt *lt)
{
	struct timeval t = lt_tv(lt->nominal);
	LT_READY(lt);
	LT_CALL(lt, select(0, NULL, NULL, NULL, &t));
	lt_done(lt, NULL);
}

/* Data is there already: the call returns at once, and nearly all the time remains. */
static void do_select_ready(struct lt *lt)
{
	struct pipe p = silent();
	LT_CHECK(write(p.w, "x", 1) == 1);
	lt->expect = 0;
	run_select(lt, p);
}

static void do_epoll_ready(struct lt *lt)
{
	struct pipe p = silent();
	LT_CHECK(write(p.w, "x", 1) == 1);
	lt->expect = 0;
	run_epoll_wait(lt, p);
}

/* No timeout at all (-1): ends by data alone. */
static void do_epoll_forever(struct lt *lt)
{
	struct epoll_event e = { 0 };
	int ep = epoll_of(half_way(lt));
	LT_READY(lt);
	LT_CALL(lt, epoll_wait(ep, &e, 1, -1));
	lt_done(lt, NULL);
}

static void do_poll_forever(struct lt *lt)
{
	struct pollfd f = { .fd = half_way(lt).r, .events = POLLIN };
	LT_READY(lt);
	LT_CALL(lt, poll(&f, 1, -1));
	lt_done(lt, NULL);
}

#define BOTH(name) \
	static void name##_timeout(struct lt *lt) { run_##name(lt, silent()); } \
	static void name##_event(struct lt *lt) { run_##name(lt, half_way(lt)); }
BOTH(poll) BOTH(ppoll) BOTH(ppoll_libc) BOTH(select) BOTH(select_libc) BOTH(pselect6)
BOTH(epoll_wait) BOTH(epoll_pwait) BOTH(epoll_pwait2)

int main(int argc, char **argv)
{
	static const struct lt_case cases[] = {
		{ "poll", poll_timeout, 1 }, { "poll-event", poll_event, 1 },
		{ "ppoll", ppoll_timeout, 1 }, { "ppoll-event", ppoll_event, 1 },
		{ "ppoll-libc", ppoll_libc_timeout, 1 }, { "ppoll-libc-event", ppoll_libc_event, 1 },
		{ "select", select_timeout, 1 }, { "select-event", select_event, 1 },
		{ "select-libc", select_libc_timeout, 1 }, { "select-libc-event", select_libc_event, 1 },
		{ "pselect6", pselect6_timeout, 1 }, { "pselect6-event", pselect6_event, 1 },
		{ "epoll_wait", epoll_wait_timeout, 1 }, { "epoll_wait-event", epoll_wait_event, 1 },
		{ "epoll_pwait", epoll_pwait_timeout, 1 }, { "epoll_pwait-event", epoll_pwait_event, 1 },
		{ "epoll_pwait2", epoll_pwait2_timeout, 1 },
		{ "epoll_pwait2-event", epoll_pwait2_event, 1 },
		{ "poll-no-fds", do_poll_null, 1 }, { "select-no-fds", do_select_null, 1 },
		{ "select-ready", do_select_ready, 1 }, { "epoll_wait-ready", do_epoll_ready, 1 },
		{ "epoll_wait-forever", do_epoll_forever, 1 }, { "poll-forever", do_poll_forever, 1 },
		{ NULL, NULL, 0 },
	};
	return lt_main(argc, argv, cases);
}
