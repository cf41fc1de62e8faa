//! FRR, with a configuration that is there.

use super::script::Script;
use super::wanted::{Files, Host};

/// The daemons that containerlab's kind `frr` can name.
const DAEMONS: [&str; 18] = [
    "bgpd", "ospfd", "ospf6d", "ripd", "ripngd", "isisd", "pimd", "pim6d", "ldpd", "nhrpd",
    "eigrpd", "babeld", "sharpd", "pbrd", "bfdd", "fabricd", "vrrpd", "pathd",
];
/// The daemons that always run. FRR has mgmtd since version 9. watchfrr has nothing to do in a node: a daemon that ends is an
/// error of the lab.
const ALWAYS: [&str; 4] = ["mgmtd", "zebra", "staticd", "watchfrr"];

/// Whether a node of containerlab's kind `frr` may name the daemon.
pub(crate) fn is_daemon(name: &str) -> bool {
    DAEMONS.contains(&name) || ALWAYS.contains(&name)
}

/// Adds the lines that write FRR's configuration.
pub(super) fn configure(script: &mut Script, config: &str) {
    // FRR's daemons give root up.
    script.line("mkdir -p /run/frr /var/log/frr && chown frr:frr /run/frr /var/log/frr");
    script.file("/etc/frr/frr.conf", config);
    script.file("/etc/frr/vtysh.conf", "service integrated-vtysh-config");
}

/// Adds the lines that start `daemons`, and give them their configuration.
pub(super) fn start(script: &mut Script, daemons: &[&str]) {
    script.line(&format!("for one in {}; do $one -d || exit; done", daemons.join(" ")));
    // Its last line says only that a line failed.
    script.line("read=$(vtysh -b 2>&1) || {");
    script.line("status=$?; echo \"$read\" | grep -v '^Configuration file'; exit $status");
    script.line("}");
}

/// Returns the script that starts FRR in a node of containerlab's kind `frr`. `daemons` are those besides [`ALWAYS`]; without
/// them, all that are installed.
pub(crate) fn frr(node: &str, config: &str, daemons: Option<&[String]>) -> String {
    let host = Host { name: node, interfaces: &[], files: Files::new() };
    let named = daemons.into_iter().flatten().map(String::as_str);
    let named: Vec<&str> = named.filter(|one| !ALWAYS.contains(one)).collect();
    let needed = [&["vtysh", "zebra", "staticd"][..], &named].concat();
    let mut script = Script::new(&host, "frr", &needed);
    configure(&mut script, config);
    script.line("if command -v mgmtd > /dev/null; then mgmtd -d || exit; fi");
    if daemons.is_none() {
        // They need zebra. A daemon for another kernel does not start.
        script.line("zebra -d || exit");
        script.line(&format!(
            "for one in {}; do if command -v $one > /dev/null; then $one -d; fi; done",
            DAEMONS.join(" ")
        ));
        start(&mut script, &["staticd"]);
    } else {
        start(&mut script, &[&["zebra", "staticd"][..], &named].concat());
    }
    script.text()
}
