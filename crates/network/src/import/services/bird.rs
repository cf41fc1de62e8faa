//! BIRD, one configuration for all protocols of a node, in the language of BIRD 2.

use std::net::Ipv4Addr;

use super::script::Script;
use super::wanted::{Host, Wanted};
use crate::import::draft::Position;

const CONFIG: &str = "/etc/bird/bird.conf";

/// A protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Ospf,
    Rip,
    RouterAdvertisement,
}

/// BIRD in a node.
pub(super) struct Bird<'a> {
    host: &'a Host<'a>,
    at: Option<Position>,
    services: Vec<String>,
    protocols: Vec<Protocol>,
    /// A whole configuration in the scenario.
    given: Option<String>,
}

impl<'a> Bird<'a> {
    pub fn new(host: &'a Host<'a>) -> Bird<'a> {
        Bird { host, at: None, services: Vec::new(), protocols: Vec::new(), given: None }
    }

    /// Adds a service.
    pub fn add(&mut self, wanted: Wanted, protocol: Option<Protocol>) {
        self.at.get_or_insert(wanted.at);
        self.services.push(wanted.name);
        self.protocols.extend(protocol);
        let mut configs = wanted.files.into_iter();
        if let Some((_, text)) = configs.find(|(path, _)| path.ends_with("bird.conf")) {
            self.given = Some(text.value);
        }
    }

    /// Returns the script that starts BIRD, if the node has it.
    pub fn script(self) -> Option<(Position, Script)> {
        let at = self.at?;
        let mut script = Script::new(self.host, &self.services.join(", "), &["bird"]);
        script.line("mkdir -p /run/bird");
        script.file(CONFIG, &self.given.clone().unwrap_or_else(|| self.config()));
        script.line(&format!("bird -c {CONFIG} -s /run/bird/bird.ctl -P /run/bird/bird.pid"));
        Some((at, script))
    }

    fn config(&self) -> String {
        let id = self.host.interfaces.iter().find_map(|one| one.ipv4);
        let (id, _) = id.unwrap_or((Ipv4Addr::LOCALHOST, 32));
        let mut text = format!("router id {id};\nprotocol device {{ }}\n");
        text += "protocol direct { ipv4; ipv6; }\n";
        for family in ["ipv4", "ipv6"] {
            text += &format!("protocol kernel {{ {family} {{ import none; export all; }}; }}\n");
        }
        for protocol in &self.protocols {
            text += &match protocol {
                Protocol::Ospf => {
                    let names: String = self.each(|name| format!("interface \"{name}\" {{ }}; "));
                    format!(
                        "protocol ospf v2 {{ ipv4 {{ import all; export all; }}; area 0 {{ {names}}}; }}\n"
                    )
                }
                Protocol::Rip => {
                    let names =
                        self.each(|name| format!("interface \"{name}\" {{ mode multicast; }}; "));
                    format!("protocol rip {{ ipv4 {{ import all; export all; }}; {names}}}\n")
                }
                Protocol::RouterAdvertisement => {
                    let names = self.each(|name| format!("interface \"{name}\" {{ }}; "));
                    format!("protocol radv {{ {names}}}\n")
                }
            };
        }
        text
    }

    /// Formats each interface's name.
    fn each(&self, format: impl Fn(&str) -> String) -> String {
        self.host.interfaces.iter().map(|interface| format(&interface.name)).collect()
    }
}
