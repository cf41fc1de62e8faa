/* The class HighPerTimer as programs written for the library of that name use it. */
#include <HighPerTimer.h>

#include <chrono>
#include <iostream>
#include <sstream>
#include <thread>

using namespace HPTimer;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            std::cout << "line " << __LINE__ << ": " << #what << std::endl; \
            return 1; \
        } \
    } while (0)

template <class Act> static bool overflows(Act act)
{
    try {
        act();
    } catch (const std::out_of_range &) {
        return true;
    }
    return false;
}

static int values()
{
    const int64_t s = 1000000000;
    HighPerTimer half(0, s / 2), three(3, 250), minus(3, 250, true), other(-3, 250), nanos(0, -250);
    CHECK(HighPerTimer::HPTimertoNSec(half) == s / 2 && HighPerTimer::HPTimertoNSec(three) == 3 * s + 250);
    CHECK(minus == other && minus.Negative() && minus.Seconds() == 3 && minus.NSeconds() == 250);
    CHECK(HighPerTimer::HPTimertoNSec(nanos) == -250);
    CHECK(overflows([] { HighPerTimer(-3, 250, true); }) && overflows([] { HighPerTimer(3, -250); }));
    timeval tv = {5, 7};
    timespec ts = {5, 7};
    CHECK(HighPerTimer(tv).USeconds() == 7 && HighPerTimer(ts).NSeconds() == 7);
    HighPerTimer from;
    CHECK(from.IsNil() && from == HighPerTimer::Nil());
    from = tv;
    CHECK(from == HighPerTimer(tv) && (from = ts) == HighPerTimer(ts));
    from.SetTV(tv);
    from.SetTS(ts);
    CHECK(tv.tv_sec == 5 && tv.tv_usec == 0 && ts.tv_nsec == 7);
    from.SetSeconds(-2);
    CHECK(HighPerTimer::HPTimertoD(from) == -2);
    from.SetUSeconds(1500000);
    CHECK(from.Seconds() == 1 && from.USeconds() == 500000 && from.NSeconds() == 500000000);
    from.SetNSeconds(-s);
    CHECK(HighPerTimer::HPTimertoNSec(from) == -s);
    from.SetTimer(1, 5, true);
    CHECK(HighPerTimer::HPTimertoNSec(from) == -s - 5);
    from.SetTics(42);
    CHECK(from.HPTics() == 42 && HighPerTimer(42, false) == from && from.PrintTime(true) == "42");
    CHECK(HighPerTimer(0).HPTics() == HighPerTimer::GetUnixZeroShift());
    return 0;
}

static int arithmetic()
{
    HighPerTimer a(2, 0), b(0, 500000000);
    CHECK(a > b && a >= b && b < a && b <= a && a != b && !(a == b));
    CHECK(HighPerTimer::HPTimertoD(a + b) == 2.5 && HighPerTimer::HPTimertoD(a - b) == 1.5);
    CHECK(HighPerTimer::HPTimertoD(b - a) == -1.5);
    CHECK(a + static_cast<uint64_t>(3) == HighPerTimer(5, 0) && a - static_cast<uint64_t>(2) == HighPerTimer::Nil());
    a += 0.5;
    a -= b;
    CHECK(a == HighPerTimer(2, 0));
    a.SecAdd(1).USecAdd(2).NSecAdd(3).TicAdd(4);
    a.SecSub(1).USecSub(2).NSecSub(3).TicSub(4);
    CHECK(a == HighPerTimer(2, 0) && a.InvertSign() == HighPerTimer(2, 0, true));
    HighPerTimer end = HighPerTimer::HPTimer_MAX, begin = HighPerTimer::HPTimer_MIN;
    CHECK(overflows([&] { end += HighPerTimer(1, false); }) && overflows([&] { begin -= HighPerTimer(1, false); }));
    CHECK(overflows([&] { end.SecAdd(1); }) && overflows([&] { end.TicAdd(UINT64_MAX); }) && overflows([&] { begin.InvertSign(); }));
    CHECK(end == HighPerTimer::HPTimer_MAX && begin == HighPerTimer::HPTimer_MIN);
    CHECK(overflows([] { HighPerTimer::DtoHPTimer(1e30); }) && HighPerTimer::DtoHPTimer(2.5).Seconds() == 2);
    std::ostringstream out;
    out << HighPerTimer(3, 7, true);
    CHECK(out.str() == "-3.000000007");
    return 0;
}

static int clock_and_sleep()
{
    const int64_t system = HighPerTimer::GetSysTime();
    HighPerTimer now = HighPerTimer::Now();
    CHECK(std::llabs(HighPerTimer::HPTimertoNSec(now) - system) < 2000000000);
    CHECK(now.PrintTime(false, false).size() == 29 && now.PrintTime().find('.') == 10);
    HighPerTimer start, after, until;
    start.SetNow();
    start.USecSleep(3000);
    HighPerTimer::Now(after);
    CHECK(HighPerTimer::HPTimertoD(after - start) >= 0.003);
    until = HighPerTimer::Now() + HighPerTimer(0, 2000000);
    until.SleepToThis();
    CHECK(HighPerTimer::Now() >= until);
    until.NSecAdd(2000000);
    start.SleepTo(until);
    CHECK(HighPerTimer::Now() >= until);
    HighPerTimer ms(0, 1000000);
    start.SetNow();
    ms.Sleep();
    start.NSecSleep(1000000);
    start.TicsSleep(static_cast<uint64_t>(ms.HPTics()));
    CHECK(HighPerTimer::Now() - start >= HighPerTimer(0, 3000000));
    HighPerTimer minute(60, 0);
    std::thread other([&minute] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        minute.Interrupt();
    });
    start.SetNow();
    minute.Sleep();
    other.join();
    CHECK(HighPerTimer::Now() - start < HighPerTimer(40, 0));
    return 0;
}

int main()
{
    const bool chosen = HighPerTimer::SetTimerSource(TimeSource::OS) == TimeSource::OS;
    CHECK(chosen && HighPerTimer::GetSourceString() == "OS" && HighPerTimer::GetHPFrequency() == 1000);
    CHECK(HighPerTimer::GetNsecPerTic() == 1);
    CHECK(HighPerTimer::SetClockSkew(0.02) && !HighPerTimer::SetClockSkew(0.03));
    HighPerTimer::InitUnixZeroShift();
    int64_t tsc = 0;
    HighPerTimer::CPU_Tics(tsc);
    CHECK(HighPerTimer::CPU_Tics() >= tsc);
    CHECK(!AccessTimeHardware::IsInvariantTSC() || AccessTimeHardware::IsConstantTSC());
    AccessTimeHardware::IsRDTSCPSupported();
    AccessTimeHardware::GetBrandString();
    AccessTimeHardware::HpetFailReason();
    CHECK(HighPerTimer::SysNow().find('.') == 10);
    if (values() || arithmetic() || clock_and_sleep())
        return 1;
    std::cout << "good" << std::endl;
    return 0;
}
