/*
 * HighPerTimer.h: the C++ interface of the library HighPerTimer (Fedotova, Siemens, Hu: "A high-precision time handling
 * library", ICNS 2013; its uses: Kirova et al., "Impact of Modern Virtualization Methods on Timing Precision and Performance of
 * High-Speed Applications", 2019, section 2.1), over lorentz_timers.h. Programs written for it compile unchanged. Link with
 * -llorentz_timers. C++11.
 *
 * A HighPerTimer is a signed count of ticks of the time source: a date, in ticks since 1970, or a span. Seconds and nanoseconds are
 * computed when they are asked for. Arithmetic out of range throws std::out_of_range.
 *
 * docs/timers.md, "HighPerTimer", tells the differences from the library of that name.
 */
#ifndef LORENTZ_HIGHPERTIMER_H
#define LORENTZ_HIGHPERTIMER_H

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <type_traits>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "lorentz_timers.h"

namespace HPTimer {

/* The sources of ticks: the processor's time stamp counter, the HPET, the system's clock. */
enum class TimeSource { TSC, HPET, OS };

/* Why the HPET cannot be used: the system's errors of these names; MC32BIT for a counter of 32 bits. */
enum class HPETFail { ACCESS, FAULT, NOENT, MFILE, AGAIN, BUSY, BADF, NODEV, NOMEM, MC32BIT, UNKNOWN };

/* The ends of the range. A template, so that a header can define them. */
template <class Timer> struct Limits {
    static Timer HPTimer_MAX;
    static Timer HPTimer_MIN;
};

/* Whether a type is one of whole numbers, not of truth. */
template <class Type> constexpr bool IsNumber()
{
    return std::is_integral<Type>::value && !std::is_same<Type, bool>::value;
}

class HighPerTimer : public Limits<HighPerTimer> {
public:
    /* --- the source --- */

    /* Puts a source in force, before the first timer. Returns the one that is in force. */
    static TimeSource SetTimerSource(TimeSource source)
    {
        lorentz_source_force(static_cast<int>(source) + 1);
        return GetHPSource();
    }
    /* Measures the length of a tick for 0.02, 0.1, 1 or 10 s, before the first timer. Returns whether it has. */
    static bool SetClockSkew(double secs)
    {
        const bool accepted = secs == 0.02 || secs == 0.1 || secs == 1 || secs == 10;
        return accepted && lorentz_source_calibrate(secs) == 0;
    }
    /* Finds anew how many ticks the counter is behind one that began in 1970. */
    static void InitUnixZeroShift() { Shift().store(FindUnixZeroShift()); }
    static int64_t GetUnixZeroShift() { return Shift().load(std::memory_order_relaxed); }
    static TimeSource GetHPSource() { return static_cast<TimeSource>(lorentz_source() - 1); }
    static std::string GetSourceString()
    {
        static const char *const names[] = {"TSC", "HPET", "OS"};
        return names[static_cast<int>(GetHPSource())];
    }
    /* The ticks in a microsecond, rounded. */
    static int64_t GetHPFrequency() { return static_cast<int64_t>(std::llround(lorentz_source_hertz() / 1e6)); }
    static double GetNsecPerTic() { return 1e9 / static_cast<double>(lorentz_source_hertz()); }
    /* CLOCK_REALTIME in nanoseconds; as "seconds.nanoseconds". */
    static int64_t GetSysTime()
    {
        timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
    }
    static std::string SysNow() { return Decimal(GetSysTime()); }
    /* The processor's counter, whatever the source; 0 where there is none. */
    static int64_t CPU_Tics()
    {
#if defined(__x86_64__)
        _mm_lfence();
        return static_cast<int64_t>(__rdtsc());
#else
        return 0;
#endif
    }
    static void CPU_Tics(int64_t &tsc) { tsc = CPU_Tics(); }

    /* --- making one --- */

    constexpr HighPerTimer() noexcept : mTics(0), mSleeper(nullptr) {}
    /* Seconds and nanoseconds; negative if `sign`. A negative number needs `sign` false, negative nanoseconds no seconds. */
    HighPerTimer(int64_t secs, int64_t nanos, bool sign = false) : mTics(Parts(secs, nanos, sign)), mSleeper(nullptr) {}
    template <class Secs, class Nanos, class = typename std::enable_if<IsNumber<Secs>() && IsNumber<Nanos>()>::type>
    HighPerTimer(Secs secs, Nanos nanos, bool sign = false) : HighPerTimer(int64_t(secs), int64_t(nanos), sign) {}
    /* Ticks of the counter, as a date if `shift`. */
    HighPerTimer(int64_t tics, bool shift = true) : mTics(shift ? Sum(tics, GetUnixZeroShift()) : tics), mSleeper(nullptr) {}
    HighPerTimer(const timeval &time) : mTics(Of(time)), mSleeper(nullptr) {}
    HighPerTimer(const timespec &time) : mTics(Of(time)), mSleeper(nullptr) {}
    HighPerTimer(const HighPerTimer &other) noexcept : mTics(other.mTics), mSleeper(nullptr) {}
    HighPerTimer(HighPerTimer &&other) noexcept : mTics(other.mTics), mSleeper(nullptr) {}
    ~HighPerTimer() { lorentz_sleeper_free(mSleeper.load(std::memory_order_acquire)); }

    const HighPerTimer &operator=(const timeval &time) { return Set(Of(time)); }
    const HighPerTimer &operator=(const timespec &time) { return Set(Of(time)); }
    const HighPerTimer &operator=(const HighPerTimer &other) noexcept { return Set(other.mTics); }
    HighPerTimer &operator=(HighPerTimer &&other) noexcept { return Set(other.mTics); }

    /* The present date. */
    static HighPerTimer Now() { return HighPerTimer(lorentz_now()); }
    static void Now(HighPerTimer &out) { out.SetNow(); }
    void SetNow() { mTics = lorentz_now() + GetUnixZeroShift(); }
    static HighPerTimer Nil() { return HighPerTimer(); }

    void SetTimer(uint64_t secs, uint64_t nanos, bool sign = false) { Set(Parts(Signed(secs), Signed(nanos), sign)); }
    void SetTimer(const timeval time) { Set(Of(time)); }
    void SetTimer(const timespec time) { Set(Of(time)); }
    void SetSeconds(int64_t secs) { Set(Converted(lorentz_interval_from_secs, secs)); }
    void SetUSeconds(int64_t micros) { Set(Converted(lorentz_interval_from_micros, micros)); }
    void SetNSeconds(int64_t nanos) { Set(Converted(lorentz_interval_from_nanos, nanos)); }
    void SetTics(int64_t tics) { Set(tics); }

    /* --- arithmetic --- */

    bool operator==(const HighPerTimer &other) const { return mTics == other.mTics; }
    bool operator!=(const HighPerTimer &other) const { return mTics != other.mTics; }
    bool operator<(const HighPerTimer &other) const { return mTics < other.mTics; }
    bool operator>(const HighPerTimer &other) const { return mTics > other.mTics; }
    bool operator<=(const HighPerTimer &other) const { return mTics <= other.mTics; }
    bool operator>=(const HighPerTimer &other) const { return mTics >= other.mTics; }

    HighPerTimer &operator+=(const HighPerTimer &other) { return Set(Sum(mTics, other.mTics)); }
    HighPerTimer &operator-=(const HighPerTimer &other) { return Set(Difference(mTics, other.mTics)); }
    HighPerTimer &operator+=(double secs) { return Set(Sum(mTics, OfDouble(secs))); }
    HighPerTimer &operator-=(double secs) { return Set(Difference(mTics, OfDouble(secs))); }

    HighPerTimer &SecAdd(uint64_t secs) { return Set(Sum(mTics, Converted(lorentz_interval_from_secs, Signed(secs)))); }
    HighPerTimer &USecAdd(uint64_t micros) { return Set(Sum(mTics, Converted(lorentz_interval_from_micros, Signed(micros)))); }
    HighPerTimer &NSecAdd(uint64_t nanos) { return Set(Sum(mTics, Converted(lorentz_interval_from_nanos, Signed(nanos)))); }
    HighPerTimer &TicAdd(uint64_t tics) { return Set(Sum(mTics, Signed(tics))); }
    HighPerTimer &SecSub(uint64_t secs) { return Set(Difference(mTics, Converted(lorentz_interval_from_secs, Signed(secs)))); }
    HighPerTimer &USecSub(uint64_t micros) { return Set(Difference(mTics, Converted(lorentz_interval_from_micros, Signed(micros)))); }
    HighPerTimer &NSecSub(uint64_t nanos) { return Set(Difference(mTics, Converted(lorentz_interval_from_nanos, Signed(nanos)))); }
    HighPerTimer &TicSub(uint64_t tics) { return Set(Difference(mTics, Signed(tics))); }
    HighPerTimer &InvertSign() { return Set(Difference(0, mTics)); }

    /* --- reading it --- */

    int64_t HPTics() const { return mTics; }
    bool Negative() const { return mTics < 0; }
    bool IsNil() const { return mTics == 0; }
    /* Without the sign. Microseconds and nanoseconds are those beyond the seconds. */
    uint64_t Seconds() const { return static_cast<uint64_t>(Size().tv_sec); }
    uint64_t USeconds() const { return NSeconds() / 1000; }
    uint64_t NSeconds() const { return static_cast<uint64_t>(Size().tv_nsec); }
    void SetTV(timeval &out) const
    {
        const timespec size = Size();
        out.tv_sec = size.tv_sec;
        out.tv_usec = size.tv_nsec / 1000;
    }
    void SetTS(timespec &out) const { out = Size(); }
    /* The ticks; or seconds since 1970, with nanoseconds; or the local date. */
    std::string PrintTime(bool HPTimer_only = false, bool UnixTime = true) const
    {
        if (HPTimer_only)
            return std::to_string(mTics);
        const timespec size = Size();
        if (UnixTime)
            return (mTics < 0 ? "-" : "") + Decimal(size);
        tm date;
        char text[64] = "";
        localtime_r(&size.tv_sec, &date);
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &date);
        return text + Decimal(size).substr(Decimal(size).find('.'));
    }

    static HighPerTimer DtoHPTimer(double secs) { return HighPerTimer(OfDouble(secs), false); }
    static double HPTimertoD(const HighPerTimer &timer) { return lorentz_interval_double(timer.mTics); }
    static double TictoD(int64_t tics) { return lorentz_interval_double(tics); }
    static HighPerTimer NSectoHPTimer(int64_t nanos)
    {
        return HighPerTimer(Converted(lorentz_interval_from_nanos, nanos), false);
    }
    static int64_t HPTimertoNSec(const HighPerTimer &timer)
    {
        int64_t nanos;
        Check(lorentz_interval_nanos(timer.mTics, &nanos));
        return nanos;
    }

    /* --- sleep --- */

    void USecSleep(uint64_t micros) const { Rest(Converted(lorentz_interval_from_micros, Signed(micros))); }
    void NSecSleep(uint64_t nanos) const { Rest(Converted(lorentz_interval_from_nanos, Signed(nanos))); }
    void TicsSleep(uint64_t tics) const { Rest(Signed(tics)); }
    /* Until a date, in ticks since 1970. */
    void SleepTo(int64_t tics) const
    {
        lorentz_sleeper_sleep_until(Sleeper(), Difference(tics, GetUnixZeroShift()));
    }
    void SleepTo(const HighPerTimer &date) const { SleepTo(date.mTics); }
    void SleepToThis() const { SleepTo(mTics); }
    /* For as long as this is. */
    void Sleep() const { Rest(mTics); }
    /* Ends a sleep of this very object, from another thread: the one that goes on, or else the next. */
    void Interrupt() { lorentz_interrupt(Sleeper()); }

private:
    int64_t mTics;
    /* Made by the first sleep or interrupt. */
    mutable std::atomic<lorentz_sleeper *> mSleeper;

    static void Check(int result)
    {
        if (result != 0)
            throw std::out_of_range("HPTimer overflow");
    }
    static int64_t Sum(int64_t a, int64_t b)
    {
        int64_t sum;
        Check(__builtin_add_overflow(a, b, &sum));
        return sum;
    }
    static int64_t Difference(int64_t a, int64_t b)
    {
        int64_t difference;
        Check(__builtin_sub_overflow(a, b, &difference));
        return difference;
    }
    static int64_t Signed(uint64_t number)
    {
        Check(number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
        return static_cast<int64_t>(number);
    }
    static int64_t Converted(int (*convert)(int64_t, lorentz_interval *), int64_t number)
    {
        lorentz_interval tics;
        Check(convert(number, &tics));
        return tics;
    }
    static int64_t OfDouble(double secs)
    {
        lorentz_interval tics;
        Check(lorentz_interval_from_double(secs, &tics));
        return tics;
    }
    static int64_t Of(const timeval &time)
    {
        lorentz_interval tics;
        Check(lorentz_interval_from_timeval(&time, &tics));
        return tics;
    }
    static int64_t Of(const timespec &time)
    {
        lorentz_interval tics;
        Check(lorentz_interval_from_timespec(&time, &tics));
        return tics;
    }
    static int64_t Parts(int64_t secs, int64_t nanos, bool sign)
    {
        const bool negative = secs < 0 || nanos < 0;
        if ((negative && sign) || (nanos < 0 && secs != 0) || secs == std::numeric_limits<int64_t>::min())
            throw std::out_of_range("HPTimer: seconds and nanoseconds with more than one sign");
        timespec size;
        size.tv_sec = secs < 0 ? -secs : secs;
        size.tv_nsec = nanos;
        const int64_t tics = Of(size);
        return sign || secs < 0 ? -tics : tics;
    }
    timespec Size() const
    {
        const int64_t size = mTics < 0 ? -(mTics + (mTics == std::numeric_limits<int64_t>::min())) : mTics;
        timespec out;
        lorentz_interval_timespec(size, &out);
        return out;
    }
    static std::string Decimal(const timespec &time)
    {
        char text[48];
        snprintf(text, sizeof text, "%lld.%09ld", static_cast<long long>(time.tv_sec), static_cast<long>(time.tv_nsec));
        return text;
    }
    static std::string Decimal(int64_t nanos)
    {
        timespec time;
        time.tv_sec = nanos / 1000000000;
        time.tv_nsec = nanos % 1000000000;
        return Decimal(time);
    }
    static int64_t FindUnixZeroShift()
    {
        timespec date;
        const lorentz_moment now = lorentz_now();
        lorentz_moment_wall(now, &date);
        return Difference(Of(date), now);
    }
    static std::atomic<int64_t> &Shift()
    {
        static std::atomic<int64_t> shift(FindUnixZeroShift());
        return shift;
    }
    HighPerTimer &Set(int64_t tics) noexcept
    {
        mTics = tics;
        return *this;
    }
    void Rest(int64_t tics) const { lorentz_sleeper_sleep(Sleeper(), tics); }
    lorentz_sleeper *Sleeper() const
    {
        lorentz_sleeper *found = mSleeper.load(std::memory_order_acquire);
        if (!found) {
            lorentz_sleeper *made = lorentz_sleeper_new();
            if (mSleeper.compare_exchange_strong(found, made, std::memory_order_acq_rel))
                return made;
            lorentz_sleeper_free(made);
        }
        return found;
    }
};

template <class Timer> Timer Limits<Timer>::HPTimer_MAX(std::numeric_limits<int64_t>::max(), false);
template <class Timer> Timer Limits<Timer>::HPTimer_MIN(std::numeric_limits<int64_t>::min(), false);

inline HighPerTimer operator+(const HighPerTimer &a, const HighPerTimer &b)
{
    HighPerTimer sum(a);
    sum += b;
    return sum;
}
inline HighPerTimer operator-(const HighPerTimer &a, const HighPerTimer &b)
{
    HighPerTimer difference(a);
    difference -= b;
    return difference;
}
/* Of seconds. */
inline HighPerTimer operator+(const HighPerTimer &timer, uint64_t secs)
{
    HighPerTimer sum(timer);
    return sum.SecAdd(secs);
}
inline HighPerTimer operator-(const HighPerTimer &timer, uint64_t secs)
{
    HighPerTimer difference(timer);
    return difference.SecSub(secs);
}
inline std::ostream &operator<<(std::ostream &out, const HighPerTimer &timer)
{
    return out << timer.PrintTime();
}

/* What the hardware is. */
class AccessTimeHardware {
public:
    AccessTimeHardware() = delete;
    static bool IsRDTSCPSupported() { return lorentz_processor_has(LORENTZ_HAS_RDTSCP) == 1; }
    static bool IsConstantTSC() { return lorentz_processor_has(LORENTZ_HAS_CONSTANT_TSC) == 1; }
    static bool IsInvariantTSC() { return lorentz_processor_has(LORENTZ_HAS_INVARIANT_TSC) == 1; }
    static std::string GetBrandString() { return lorentz_processor_brand(); }
    /* UNKNOWN also where the HPET can be used. */
    static HPETFail HpetFailReason()
    {
        switch (lorentz_hpet_error()) {
        case EACCES: return HPETFail::ACCESS;
        case EFAULT: return HPETFail::FAULT;
        case ENOENT: return HPETFail::NOENT;
        case EMFILE: return HPETFail::MFILE;
        case EAGAIN: return HPETFail::AGAIN;
        case EBUSY: return HPETFail::BUSY;
        case EBADF: return HPETFail::BADF;
        case ENODEV: return HPETFail::NODEV;
        case ENOMEM: return HPETFail::NOMEM;
        case EOVERFLOW: return HPETFail::MC32BIT;
        default: return HPETFail::UNKNOWN;
        }
    }
};

} // namespace HPTimer

#endif
