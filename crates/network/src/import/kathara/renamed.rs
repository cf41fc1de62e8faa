//! Services that a machine's root file system has under another name than Kathara's image.

use std::path::Path;

/// Begins the preparation of a node. The preparation writes to /etc, so it ends at once in a node that is not private: there
/// /proc/sys/kernel can be written. It fails nowhere, for the line that starts the service tells what is missing.
const BEGIN: &str = r"# The lab's names for the services of this node.
[ ! -w /proc/sys/kernel/hostname ] || exit 0
has() { [ -e /etc/init.d/$1 ] || [ -e /lib/systemd/system/$1.service ] || [ -e /etc/systemd/system/$1.service ]; }
";
/// Debian called the service bind9 until release 10, and named since.
const BIND: &str = r"if [ -e /etc/init.d/named ] && ! has bind9; then ln -s named /etc/init.d/bind9; fi
if [ -e /etc/init.d/bind9 ] && ! has named; then ln -s bind9 /etc/init.d/named; fi
";
/// Debian has no Quagga since release 11. FRR reads the same configuration. But FRR exchanges no routes of BGP without a policy, and
/// announces only networks that it has a route to; Quagga does both.
const QUAGGA: &str = r"if [ -e /etc/init.d/frr ] && ! has quagga && ! has zebra; then
  rm -f /etc/frr/frr.conf
  for from in /etc/zebra /etc/quagga; do if [ -d $from ]; then cp -R $from/. /etc/frr; fi; done
  if [ -e /etc/frr/Quagga.conf ]; then mv /etc/frr/Quagga.conf /etc/frr/frr.conf; fi
  for config in /etc/frr/bgpd.conf /etc/frr/frr.conf; do
    if [ -e $config ]; then sed -i 's/^ *router bgp .*/&\nno bgp ebgp-requires-policy\nno bgp network import-check/' $config; fi
  done
  mkdir -p /var/log/quagga /var/log/zebra
  chown -R frr:frr /etc/frr /var/log/quagga /var/log/zebra
  for name in quagga zebra; do ln -s frr /etc/init.d/$name; done
fi
";

/// Returns a script that prepares a node for the services that `scripts` start, or that have a configuration in `files`; None if
/// no such service has had several names.
pub(super) fn preparation<'a>(
    scripts: impl Iterator<Item = &'a str> + Clone,
    files: &Path,
) -> Option<String> {
    let is_wanted = |services: &[&str], folders: &[&str]| {
        folders.iter().any(|one| files.join(one).is_dir())
            || scripts.clone().flat_map(str::lines).any(|line| starts(line, services))
    };
    let mut text = String::new();
    if is_wanted(&["bind9", "named"], &["etc/bind"]) {
        text += BIND;
    }
    if is_wanted(&["quagga", "zebra"], &["etc/quagga", "etc/zebra"]) {
        text += QUAGGA;
    }
    (!text.is_empty()).then(|| format!("{BEGIN}{text}exit 0"))
}

/// Whether the line starts, stops or restarts one of the services.
fn starts(line: &str, services: &[&str]) -> bool {
    let words = || line.split(|c: char| c.is_whitespace() || ";&|/".contains(c));
    words().any(|word| ["systemctl", "service", "init.d"].contains(&word))
        && words().any(|word| services.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_starts_a_renamed_service_is_known() {
        let files = tempfile::tempdir().unwrap();
        let text = |script| preparation([script].into_iter(), files.path()).unwrap_or_default();
        let starts = [
            "systemctl start quagga",
            "ip link\n/etc/init.d/zebra start",
            "service quagga start;:",
        ];
        for script in starts {
            assert!(text(script).contains(QUAGGA) && !text(script).contains(BIND), "{script}");
        }
        assert!(text("systemctl start bind9").contains(BIND));
        for script in ["systemctl start frr", "echo quagga", "vi /etc/quagga/bgpd.conf"] {
            assert_eq!(text(script), "", "{script}");
        }
        std::fs::create_dir_all(files.path().join("etc/zebra")).unwrap();
        assert!(text("").contains(QUAGGA));
    }
}
