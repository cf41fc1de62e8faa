//! Servers, and programs that watch.

use super::script::{quoted, Script};
use super::wanted::Host;

/// OpenSSH, with a key of the node's own. No user has a password or a key: who logs in adds one.
pub(super) fn ssh(host: &Host) -> Script {
    let mut script = Script::new(host, "SSH", &["sshd", "ssh-keygen"]);
    script.line("mkdir -p /run/sshd");
    script.file(
        "/etc/ssh/sshd_config",
        "Port 22\nHostKey /etc/ssh/node_key\nPermitRootLogin yes\nUsePAM no\nUseDNS no\nPidFile /run/sshd.pid\n\
         AcceptEnv LANG LC_*\nSubsystem sftp /usr/lib/openssh/sftp-server",
    );
    script.line("rm -f /etc/ssh/node_key");
    script.line("ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/node_key");
    // The server must be started by its full path.
    script.line("$(command -v sshd) -f /etc/ssh/sshd_config");
    script
}

/// vsftpd, which serves /var/ftp to everyone. Its own namespaces and filters would need rights that nodes do not
/// have.
pub(super) fn ftp(host: &Host) -> Script {
    let mut script = Script::new(host, "FTP", &["vsftpd"]);
    script.line("mkdir -p /run/vsftpd/empty /var/ftp");
    script.file(
        "/etc/vsftpd.conf",
        "listen=YES\nbackground=YES\nanonymous_enable=YES\nlocal_enable=YES\ndirmessage_enable=YES\n\
         use_localtime=YES\nxferlog_enable=YES\nconnect_from_port_20=YES\nxferlog_file=/var/log/vsftpd.log\n\
         ftpd_banner=Welcome to the FTP service\nsecure_chroot_dir=/run/vsftpd/empty\nanon_root=/var/ftp\n\
         isolate=NO\nisolate_network=NO\nseccomp_sandbox=NO",
    );
    script.line("vsftpd /etc/vsftpd.conf");
    script
}

/// inetd, which starts telnetd for each connection.
pub(super) fn telnet(host: &Host) -> Script {
    let mut script = Script::new(host, "telnet", &["inetutils-inetd", "telnetd"]);
    script.file(
        "/etc/inetd.conf",
        "telnet stream tcp nowait root /usr/sbin/telnetd telnetd\n\
         telnet stream tcp6 nowait root /usr/sbin/telnetd telnetd",
    );
    script.line("inetutils-inetd -p /run/inetd.pid /etc/inetd.conf");
    script
}

const APACHE: &str = "\
ServerRoot /etc/apache2
PidFile /run/apache2.pid
ErrorLog /var/log/apache2/error.log
Listen 80
User www-data
Group www-data
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
TypesConfig /dev/null
AddType text/html .html
DocumentRoot /var/www
DirectoryIndex index.html
<Directory /var/www>
  Require all granted
</Directory>
StartServers 1
";

/// Apache, or Python's server where Apache is not there.
pub(super) fn http(host: &Host) -> Script {
    let mut page = format!(
        "<html><body>\n<h1>{} web server</h1>\n<p>This is the default web page for this server.</p>\n",
        host.name
    );
    for interface in host.interfaces {
        let ipv4 = interface.ipv4_text();
        let ipv6 = interface.ipv6.map(|(address, length)| format!("{address}/{length}"));
        let all: Vec<String> = ipv4.into_iter().chain(ipv6).collect();
        page += &format!("<li>{} - {}</li>\n", interface.name, all.join(", "));
    }
    page += "</body></html>";
    let mut script = Script::new(host, "HTTP", &[]);
    script.file("/var/www/index.html", &page);
    script.line("if command -v apache2 > /dev/null; then");
    script.line("mkdir -p /var/log/apache2");
    script.file("/etc/apache2/apache2.conf", &format!("ServerName {}\n{APACHE}", host.name));
    script.line("apache2 -f /etc/apache2/apache2.conf -k start");
    script.line("elif command -v python3 > /dev/null; then");
    script.line(
        "python3 -m http.server 80 --directory /var/www < /dev/null > /var/log/http.log 2>&1 &",
    );
    script.line("else");
    script.line("leave_out 'not installed: apache2'");
    script.line("fi");
    script
}

/// UCARP on the loopback interface, as CORE has it until a file of the scenario says more.
pub(super) fn ucarp(host: &Host) -> Script {
    let mut script = Script::new(host, "UCARP", &["ucarp"]);
    let folder = "/usr/local/etc/ucarp";
    for (name, verb) in [("up", "replace"), ("down", "del")] {
        let path = format!("{folder}/default-{name}.sh");
        script.file(
            &path,
            &format!("#!/bin/sh\nexec ip address {verb} \"$2/${{3:-24}}\" dev \"$1\""),
        );
        script.line(&format!("chmod 755 {path}"));
    }
    script.line(&format!(
        "ucarp -B -z -n -M -b 1 -k 0 -r 3 -i lo -v 1 -p changeme -a 127.0.0.254 -s 127.0.0.1 -x 8 \
         -u {folder}/default-up.sh -d {folder}/default-down.sh"
    ));
    script
}

/// tcpdump, a file for each interface in /var/tmp.
pub(super) fn pcap(host: &Host) -> Script {
    let mut script = Script::new(host, "pcap", &["tcpdump"]);
    for interface in host.interfaces {
        let name = quoted(&interface.name);
        script.line(&format!(
            "tcpdump -Z root -U -s 12288 -C 10 -n -w /var/tmp/$(hostname).{name}.pcap -i {name} < /dev/null &"
        ));
    }
    script
}

/// The daemon of `at`.
pub(super) fn atd(host: &Host) -> Script {
    let mut script = Script::new(host, "atd", &["atd"]);
    script.line("atd");
    script
}
