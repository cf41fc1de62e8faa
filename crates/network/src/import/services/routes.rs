//! Routes, address translation, and advertisements of routers.

use serde_saphyr::Spanned;

use super::script::{quoted, Script};
use super::wanted::Host;

/// Returns the commands that add the routes of a configuration for routing daemons, if it has nothing else: then no
/// daemon is needed.
pub(super) fn only_routes(config: &Spanned<String>) -> Option<Vec<Spanned<String>>> {
    let lines = config.value.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('!'));
    let command = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ip" | "ipv6", "route", network, gateway, metric @ ..] = &words[..] else {
            return None;
        };
        let metric = match metric {
            [] => String::new(),
            [metric] => format!(" metric {}", metric.parse::<u32>().ok()?),
            _ => return None,
        };
        let (network, gateway) = (quoted(network), quoted(gateway));
        Some(Spanned {
            value: format!("ip route replace {network} via {gateway}{metric}"),
            ..config.clone()
        })
    };
    lines.map(command).collect()
}

/// Sends groups by the first interface.
pub(super) fn multicast(host: &Host) -> Script {
    let mut script = Script::new(host, "DefaultMulticastRoute", &[]);
    if let Some(first) = host.interfaces.first() {
        script.line(&format!("ip route replace 224.0.0.0/4 dev {}", quoted(&first.name)));
    }
    script
}

/// Translates the addresses of what leaves by the first interface.
pub(super) fn nat(host: &Host) -> Script {
    let mut script = Script::new(host, "NAT", &["iptables"]);
    if let Some(first) = host.interfaces.first() {
        let name = quoted(&first.name);
        script.line(&format!("iptables -t nat -A POSTROUTING -o {name} -j MASQUERADE"));
    }
    script
}

/// Advertises the node as a router, and the prefixes of its interfaces.
pub(super) fn radvd(host: &Host) -> Script {
    let mut config = String::new();
    for interface in host.interfaces {
        let Some((address, length)) = interface.ipv6 else { continue };
        config += &format!(
            "interface {}\n{{\n  AdvSendAdvert on;\n  MinRtrAdvInterval 3;\n  MaxRtrAdvInterval 10;\n  \
             AdvDefaultPreference low;\n  AdvHomeAgentFlag off;\n  prefix {address}/{length}\n  {{\n    \
             AdvOnLink on;\n    AdvAutonomous on;\n    AdvRouterAddr on;\n  }};\n}};\n",
            interface.name
        );
    }
    let mut script = Script::new(host, "radvd", &["radvd"]);
    script.file("/etc/radvd.conf", &config);
    script.line("radvd -C /etc/radvd.conf -p /run/radvd.pid -m logfile -l /var/log/radvd.log");
    script
}
