//! NAT64: addresses of IPv6 hosts are translated to IPv4.

use super::script::{quoted, Script};
use super::wanted::{Files, Host};

/// A translator, as IMUNES configures TAYGA.
pub(crate) struct Translation {
    /// IPv4 network from which hosts get addresses.
    pub pool: String,
    /// IPv6 network of 96 bits in which IPv4 addresses are seen.
    pub prefix: String,
    /// Pairs of an IPv4 and an IPv6 address that belong together.
    pub mappings: Vec<String>,
}

/// Returns the script that starts TAYGA in a node. The translator has the first address of its pool.
pub(crate) fn translate(node: &str, translation: &Translation) -> String {
    const DEVICE: &str = "tun0";
    let Translation { pool, prefix, mappings } = translation;
    let own = pool.split('/').next().unwrap_or_default();
    let mut config = format!(
        "tun-device {DEVICE}\nipv4-addr {own}\ndynamic-pool {pool}\nprefix {prefix}\ndata-dir /var/lib/tayga\n"
    );
    mappings.iter().for_each(|pair| config += &format!("map {pair}\n"));
    let host = Host { name: node, interfaces: &[], files: Files::new() };
    let mut script = Script::new(&host, "NAT64", &["tayga"]);
    script.file("/etc/tayga.conf", &config);
    script.line("mkdir -p /dev/net /var/lib/tayga");
    script.line("[ -c /dev/net/tun ] || mknod /dev/net/tun c 10 200");
    script.line("tayga --mktun -c /etc/tayga.conf > /dev/null || exit");
    script.line(&format!("ip link set {DEVICE} up"));
    for network in [pool, prefix] {
        script.line(&format!("ip route replace {} dev {DEVICE}", quoted(network)));
    }
    script.line("tayga -c /etc/tayga.conf");
    script.text()
}
