// C++'s own ways to spend time. argv[1]: nominal nanoseconds. Lines as lt.h describes them.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

using namespace std::chrono;

static nanoseconds nominal;

static void check(bool ok, const char *what)
{
	if (!ok) {
		std::fprintf(stderr, "broken: %s\n", what);
		std::exit(97);
	}
}

static void item(const char *name, const std::function<void()> &call)
{
	std::printf("{\"ev\":\"ready\",\"case\":\"%s\"}\n", name);
	std::fflush(stdout);
	auto start = steady_clock::now();
	call();
	double took = duration<double>(steady_clock::now() - start).count();
	std::printf("{\"ev\":\"done\",\"case\":\"%s\",\"elapsed\":%.9f,\"expect\":%.9f}\n", name, took,
		    duration<double>(nominal).count());
	std::fflush(stdout);
}

template <class Clock> static void wait_until()
{
	std::mutex m;
	std::condition_variable c;
	std::unique_lock<std::mutex> lock(m);
	check(!c.wait_until(lock, Clock::now() + nominal, [] { return false; }), "wait_until");
}

static void future_wait_for()
{
	std::promise<void> never;
	check(never.get_future().wait_for(nominal) == std::future_status::timeout, "wait_for");
}

template <class Clock> static void future_wait_until()
{
	std::promise<void> never;
	check(never.get_future().wait_until(Clock::now() + nominal) == std::future_status::timeout,
	      "wait_until");
}

static void timed_mutex()
{
	std::timed_mutex m;
	m.lock();
	std::thread([&m] { check(!m.try_lock_for(nominal), "try_lock_for"); }).join();
	m.unlock();
}

// An exception thrown out of a function that slept unwinds through the frames below it.
static void throwing()
{
	try {
		std::this_thread::sleep_for(nominal);
		throw 1;
	} catch (int) {
	}
}

int main(int argc, char **argv)
{
	check(argc == 2, "argument");
	nominal = nanoseconds(std::atoll(argv[1]));
	item("sleep_for", [] { std::this_thread::sleep_for(nominal); });
	item("sleep_until-steady", [] { std::this_thread::sleep_until(steady_clock::now() + nominal); });
	item("sleep_until-system", [] { std::this_thread::sleep_until(system_clock::now() + nominal); });
	item("future.wait_for", future_wait_for);
	item("future.wait_until-steady", future_wait_until<steady_clock>);
	item("future.wait_until-system", future_wait_until<system_clock>);
	item("cond.wait_until-steady", wait_until<steady_clock>);
	item("cond.wait_until-system", wait_until<system_clock>);
	item("timed_mutex", timed_mutex);
	item("exception", throwing);
	std::time_t now = std::time(nullptr);
	std::printf("{\"ev\":\"year\",\"year\":%d}\n{\"ev\":\"end\"}\n", std::gmtime(&now)->tm_year + 1900);
	return 0;
}
