//! Names under which browsers reach the server.

use std::net::SocketAddr;

/// Names under which browsers reach the server.
pub struct Names {
    known: Vec<String>,
    /// Any port counts: the other end of a tunnel to a unix socket chooses it.
    any_port: bool,
    /// `http` or `https`.
    scheme: &'static str,
}

impl Names {
    /// The names of a server that listens at `address`; without one, at a unix socket. `others` are further ones.
    pub fn new(address: Option<SocketAddr>, others: &[String], is_tls: bool) -> Names {
        let scheme = if is_tls { "https" } else { "http" };
        let standard = if is_tls { 443 } else { 80 };
        let mut known = Vec::new();
        for name in ["127.0.0.1", "localhost", "[::1]"] {
            match address {
                Some(address) => known.push(format!("{name}:{}", address.port())),
                None => known.push(name.to_string()),
            }
        }
        if let Some(address) = address {
            if !address.ip().is_unspecified() {
                known.push(address.to_string());
            }
        }
        for name in others {
            match address {
                Some(address) if !has_port(name) => {
                    known.push(format!("{name}:{}", address.port()))
                }
                _ => known.push(name.clone()),
            }
        }
        // Browsers leave the standard port out.
        let suffix = format!(":{standard}");
        let short: Vec<String> =
            known.iter().filter_map(|name| Some(name.strip_suffix(&suffix)?.to_string())).collect();
        known.extend(short);
        Names { known, any_port: address.is_none(), scheme }
    }

    /// Whether `host` is one of the names.
    pub fn has(&self, host: &str) -> bool {
        let bare = match host.rsplit_once(':') {
            Some((name, port)) if self.any_port && is_port(port) => name,
            _ => host,
        };
        self.known.iter().any(|known| known == host || known == bare)
    }

    /// The origin of pages that `host` names, which is one of the names.
    pub fn origin(&self, host: &str) -> String {
        format!("{}://{host}", self.scheme)
    }

    /// Whether the server is reached by TLS.
    pub fn is_tls(&self) -> bool {
        self.scheme == "https"
    }
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|c| c.is_ascii_digit())
}

fn has_port(name: &str) -> bool {
    name.rsplit_once(':').is_some_and(|(_, port)| is_port(port))
}

/// Browsers share cookies between the ports of a host, so the name has the port.
pub fn cookie_name(host: &str, names: &Names) -> String {
    let standard = if names.is_tls() { "443" } else { "80" };
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| is_port(port));
    format!("lorentz-{}", port.unwrap_or(standard))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn only_the_names_of_the_list_are_known() {
        let names =
            Names::new(at("127.0.0.1:8123"), &["lab.example:99".into(), "lab".into()], false);
        for known in
            ["127.0.0.1:8123", "localhost:8123", "[::1]:8123", "lab.example:99", "lab:8123"]
        {
            assert!(names.has(known), "{known}");
        }
        for other in [
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost",
            "evil.example:8123",
            "127.0.0.1.evil.example:8123",
            "localhost:8123.",
            "",
            "lab",
            "LOCALHOST:8123",
            "127.0.0.1:8123:8123",
        ] {
            assert!(!names.has(other), "{other}");
        }
    }

    #[test]
    fn a_standard_port_may_be_left_out() {
        assert!(Names::new(at("127.0.0.1:80"), &[], false).has("localhost"));
        let names = Names::new(at("192.0.2.1:443"), &[], true);
        assert!(names.has("192.0.2.1") && names.has("192.0.2.1:443"));
        assert!(!Names::new(at("0.0.0.0:443"), &[], true).has("0.0.0.0"));
    }

    #[test]
    fn a_tunnel_to_a_unix_socket_has_any_port() {
        let names = Names::new(None, &[], false);
        for known in ["localhost:8080", "127.0.0.1:1", "[::1]:65535", "localhost"] {
            assert!(names.has(known), "{known}");
        }
        for other in ["evil.example:8080", "localhost:", "localhost:x", "[::2]:8080"] {
            assert!(!names.has(other), "{other}");
        }
    }

    #[test]
    fn cookies_are_named_by_the_port() {
        let names = Names::new(None, &[], false);
        assert_eq!(cookie_name("localhost:8080", &names), "lorentz-8080");
        assert_eq!(cookie_name("localhost", &names), "lorentz-80");
        assert_eq!(cookie_name("[::1]", &names), "lorentz-80");
    }
}
