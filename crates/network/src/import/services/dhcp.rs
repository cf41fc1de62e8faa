//! DHCP: ISC's server and client.

use std::net::Ipv4Addr;

use super::interfaces::network_of;
use super::script::{quoted, Script};
use super::wanted::Host;

/// Serves the upper half of each network of the node, and names the node as the router, as CORE does.
pub(super) fn server(host: &Host) -> Script {
    let mut config =
        "default-lease-time 600;\nmax-lease-time 7200;\nddns-update-style none;\n".to_string();
    let mut names = Vec::new();
    for interface in host.interfaces {
        // The networks with room for a server and a client.
        let Some((address, length)) = interface.ipv4.filter(|(_, length)| (1..30).contains(length))
        else {
            continue;
        };
        names.push(quoted(&interface.name));
        let (network, mask) = network_of((address, length));
        let size = 1_u32 << (32 - length);
        let at = |offset: u32| Ipv4Addr::from(u32::from(network) + offset);
        let (first, last) = (at(size / 2), at(size - 2));
        config += &format!(
            "subnet {network} netmask {mask} {{\n  pool {{\n    range {first} {last};\n    \
             option routers {address};\n  }}\n}}\n"
        );
    }
    let mut script = Script::new(host, "DHCP", &["dhcpd"]);
    script.file("/etc/dhcp/dhcpd.conf", &config);
    script.line("mkdir -p /var/lib/dhcp");
    script.line("touch /var/lib/dhcp/dhcpd.leases");
    script.line(&format!(
        "dhcpd -q -cf /etc/dhcp/dhcpd.conf -lf /var/lib/dhcp/dhcpd.leases -pf /run/dhcpd.pid {}",
        names.join(" ")
    ));
    script
}

/// Asks for an address on each interface. The client goes on by itself until a server answers.
pub(super) fn client(host: &Host) -> Script {
    let mut script = Script::new(host, "DHCPClient", &["dhclient"]);
    for interface in host.interfaces {
        let name = quoted(&interface.name);
        script.line(&format!(
            "dhclient -nw -pf /run/dhclient-{name}.pid -lf /run/dhclient-{name}.lease {name}"
        ));
    }
    script
}
