//! Timers of a node's network namespace that have a setting: those of neighbours (ARP, IPv6's neighbour discovery), of fragments,
//! of connection tracking, and some of TCP's. The kernel keeps them in real time. At a rate other than 1 each is as long as its
//! usual length takes by the network's clock. In a node whose computing takes no time, real time decides nothing: a known neighbour is
//! never asked for its address again.

use std::fs;
use std::path::Path;

use lorentz_clock::{Rate, Span, NANOS_PER_SEC};
use lorentz_experiment::ComputeTime;

/// A setting: its name below /proc/sys/net, its usual length, and its unit. In the name `*` stands for each interface.
type Timer = (&'static str, Span, Span);

const fn secs(seconds: i64) -> Span {
    Span(seconds * NANOS_PER_SEC)
}

const SECOND: Span = secs(1);
const MILLISECOND: Span = Span(NANOS_PER_SEC / 1_000);
/// The tick that the kernel shows to programs.
const USER_TICK: Span = Span(NANOS_PER_SEC / 100);

/// The usual lengths are the kernel's: `arp_tbl` and `nd_tbl` (net/ipv4/arp.c, net/ipv6/ndisc.c), `nf_conntrack_proto_*.c`, and
/// Documentation/networking/ip-sysctl.rst.
const TIMERS: [Timer; 32] = [
    ("ipv4/neigh/*/retrans_time_ms", secs(1), MILLISECOND),
    ("ipv4/neigh/*/base_reachable_time_ms", secs(30), MILLISECOND),
    ("ipv4/neigh/*/delay_first_probe_time", secs(5), SECOND),
    ("ipv4/neigh/*/gc_stale_time", secs(60), SECOND),
    ("ipv4/neigh/*/locktime", secs(1), USER_TICK),
    ("ipv6/neigh/*/retrans_time_ms", secs(1), MILLISECOND),
    ("ipv6/neigh/*/base_reachable_time_ms", secs(30), MILLISECOND),
    ("ipv6/neigh/*/delay_first_probe_time", secs(5), SECOND),
    ("ipv6/neigh/*/gc_stale_time", secs(60), SECOND),
    ("ipv4/ipfrag_time", secs(30), SECOND),
    ("ipv6/ip6frag_time", secs(60), SECOND),
    ("ipv4/tcp_fin_timeout", secs(60), SECOND),
    ("ipv4/tcp_keepalive_time", secs(7_200), SECOND),
    ("ipv4/tcp_keepalive_intvl", secs(75), SECOND),
    ("netfilter/nf_conntrack_frag6_timeout", secs(60), SECOND),
    ("netfilter/nf_conntrack_generic_timeout", secs(600), SECOND),
    ("netfilter/nf_conntrack_icmp_timeout", secs(30), SECOND),
    ("netfilter/nf_conntrack_icmpv6_timeout", secs(30), SECOND),
    ("netfilter/nf_conntrack_udp_timeout", secs(30), SECOND),
    ("netfilter/nf_conntrack_udp_timeout_stream", secs(120), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_syn_sent", secs(120), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_syn_recv", secs(60), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_established", secs(432_000), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_fin_wait", secs(120), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_close_wait", secs(60), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_last_ack", secs(30), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_time_wait", secs(120), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_close", secs(10), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_max_retrans", secs(300), SECOND),
    ("netfilter/nf_conntrack_tcp_timeout_unacknowledged", secs(300), SECOND),
    ("netfilter/nf_conntrack_gre_timeout", secs(30), SECOND),
    ("netfilter/nf_conntrack_gre_timeout_stream", secs(180), SECOND),
];

/// The last parts of the names of timers after which the kernel asks whether a neighbour still has its address.
const REFRESHES: [&str; 3] = ["base_reachable_time_ms", "delay_first_probe_time", "gc_stale_time"];

/// Whether the timers of a node with `compute` in a network at `rate` are those that the host has.
pub(crate) fn are_usual(rate: Rate, compute: ComputeTime) -> bool {
    rate == Rate::ONE && compute == ComputeTime::Real
}

/// Sets the timers in the network namespace of this thread, that of a node with `compute` in a network at `rate`; not those that
/// `is_own` names, by the keys of `sysctl`. Interfaces that are made later have the host's settings.
pub(crate) fn set(rate: Rate, compute: ComputeTime, is_own: impl Fn(&str) -> bool) {
    let refreshes = compute == ComputeTime::Real;
    for (name, length, unit) in TIMERS {
        let never = !refreshes && REFRESHES.iter().any(|timer| name.ends_with(timer));
        let value = if never { LONGEST.0 / unit.0 } else { value(rate, length, unit) }.to_string();
        for name in names(name) {
            if !is_own(&format!("net.{}", name.replace('/', "."))) {
                // An error means a kernel without this setting.
                let _ = fs::write(Path::new(ROOT).join(&name), &value);
            }
        }
    }
}

const ROOT: &str = "/proc/sys/net";

/// The kernel counts in ticks, of which an `int` has to hold the number.
const LONGEST: Span = secs(2_000_000);

/// Returns the names that a pattern stands for here.
fn names(pattern: &str) -> Vec<String> {
    let Some((before, after)) = pattern.split_once('*') else { return vec![pattern.to_string()] };
    let interfaces = fs::read_dir(Path::new(ROOT).join(before)).into_iter().flatten().flatten();
    interfaces.map(|one| format!("{before}{}{after}", one.file_name().to_string_lossy())).collect()
}

/// Returns `length` of virtual time at `rate` as a setting in `unit`s of real time.
fn value(rate: Rate, length: Span, unit: Span) -> i64 {
    /// Some ticks: an answer needs the processor.
    const SHORTEST: Span = Span(20 * MILLISECOND.0);
    let real = i128::from(length.0) * i128::from(rate.den()) / i128::from(rate.num());
    let real = real.clamp(i128::from(SHORTEST.0), i128::from(LONGEST.0)) as i64;
    (real / unit.0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_duration_takes_its_real_time() {
        let slow = Rate::new(1, 100).unwrap();
        assert_eq!(value(slow, secs(1), MILLISECOND), 100_000);
        assert_eq!(value(slow, secs(5), SECOND), 500);
        assert_eq!(value(slow, secs(1), USER_TICK), 10_000);
        assert_eq!(value(Rate::ONE, secs(432_000), SECOND), 432_000);
        let fast = Rate::new(10, 1).unwrap();
        assert_eq!(value(fast, secs(1), MILLISECOND), 100);
        assert_eq!(value(fast, secs(5), SECOND), 1);
    }

    #[test]
    fn no_setting_is_one_that_the_kernel_refuses() {
        for (rate, bounds) in [((1, 1_000_000), (1, 2_000_000_000)), ((1_000_000, 1), (1, 1_000))] {
            let rate = Rate::new(rate.0, rate.1).unwrap();
            for (name, length, unit) in TIMERS {
                let value = value(rate, length, unit);
                assert!((bounds.0..=bounds.1).contains(&value), "{name}: {value}");
            }
        }
    }
}
