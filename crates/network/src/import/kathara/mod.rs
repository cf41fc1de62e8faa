//! Kathara's network scenarios: `lab.conf`, and the `.startup` files beside it.
//!
//! A collision domain of two interfaces becomes a link. A domain of more interfaces becomes a switch with its name.

mod renamed;

use std::collections::BTreeMap;
use std::path::Path;

use serde_saphyr::Spanned;

use super::draft::{join_arguments, link, plain_name, words, Draft, Position, Read};
use crate::topology::{Node, NodeCommand, NodeKind};

/// `MACHINE[KEY]="VALUE"`, or `KEY="VALUE"`.
struct Line<'a> {
    at: Position,
    machine: Option<&'a str>,
    key: &'a str,
    value: &'a str,
    value_at: Position,
}

/// An interface in a collision domain.
struct DomainMember {
    end: Spanned<String>,
    mac: Option<Spanned<String>>,
}

pub(super) fn read(draft: &mut Draft, text: &str, path: &Path) -> Read<()> {
    let mut domains: BTreeMap<String, Vec<DomainMember>> = BTreeMap::new();
    let mut machines: Vec<(String, Position)> = Vec::new();
    for (number, raw) in text.lines().enumerate() {
        let Some(line) = parse(draft, raw, number as u32 + 1)? else { continue };
        let Some(machine) = line.machine else {
            match line.key {
                "LAB_NAME" => draft.file.name = line.value_at.of(plain_name(line.value)),
                key => draft.leave_out(line.at, format!("{key}={}", line.value)),
            }
            continue;
        };
        if draft.node(machine).is_none() {
            let shell = Some(line.at.of("bash".to_string()));
            let sysctls = sysctls(line.at);
            draft.add_node(line.at, machine, Node { shell, sysctls, ..Node::default() })?;
            machines.push((machine.to_string(), line.at));
        }
        match line.key.parse::<u32>() {
            Ok(number) => {
                let end = line.at.of(format!("{machine}:eth{number}"));
                let (domain, mac) = match line.value.split_once('/') {
                    Some((domain, mac)) => (domain, Some(line.value_at.of(mac.to_string()))),
                    None => (line.value, None),
                };
                domains.entry(domain.to_string()).or_default().push(DomainMember { end, mac });
            }
            Err(_) => set(draft, machine, &line),
        }
    }
    for (machine, _) in &machines {
        draft.node(machine).into_iter().for_each(join_arguments);
    }
    join(draft, domains)?;
    startups(draft, &machines, path.parent().unwrap_or(Path::new(".")));
    Ok(())
}

/// The settings that Kathara gives each machine, unless the lab says otherwise: machines forward packets, and take those that come
/// by another way than the answer would.
fn sysctls(at: Position) -> BTreeMap<String, Spanned<String>> {
    const IPV4: [(&str, &str); 5] = [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.icmp_ratelimit", "0"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.conf.lo.rp_filter", "0"),
    ];
    const IPV6: [(&str, &str); 3] = [
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv6.conf.all.accept_ra", "0"),
        ("net.ipv6.icmp.ratelimit", "0"),
    ];
    let has_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    let all = IPV4.iter().chain(IPV6.iter().filter(|_| has_ipv6));
    all.map(|(key, value)| (key.to_string(), at.of(value.to_string()))).collect()
}

fn parse<'a>(draft: &Draft, raw: &'a str, number: u32) -> Read<Option<Line<'a>>> {
    let text = raw.trim();
    let column = (raw.len() - raw.trim_start().len()) as u32 + 1;
    let at = Position { line: number, column };
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let Some((left, value)) = text.split_once('=') else {
        return draft.error(at, format!("{text:?}: expected MACHINE[KEY]=VALUE, or KEY=VALUE"));
    };
    let value_at = Position { line: number, column: column + left.len() as u32 + 1 };
    let (value, rest) = match value.trim().chars().next().filter(|c| ['"', '\''].contains(c)) {
        Some(quote) => match value.trim()[1..].split_once(quote) {
            Some(both) => both,
            None => return draft.error(value_at, format!("{value}: expected a closing {quote}")),
        },
        None => {
            let value = value.trim();
            value.split_at(value.find(char::is_whitespace).unwrap_or(value.len()))
        }
    };
    if !rest.trim().is_empty() && !rest.trim_start().starts_with('#') {
        return draft
            .error(value_at, format!("{}: expected nothing behind the value", rest.trim()));
    }
    let (machine, key) = match left.trim().split_once('[') {
        Some((machine, key)) => match key.strip_suffix(']') {
            Some(key) => (Some(machine.trim()), key.trim_matches(['"', '\''])),
            None => return draft.error(at, format!("{left}: expected ]")),
        },
        None => (None, left.trim()),
    };
    Ok(Some(Line { at, machine, key, value, value_at }))
}

/// Applies a setting of a machine that is not one of its interfaces.
fn set(draft: &mut Draft, machine: &str, line: &Line) {
    let Some(node) = draft.node(machine) else { return };
    let pair = line.value.split_once('=');
    match (line.key, pair) {
        ("image", _) => node.image = Some(line.value_at.of(line.value.to_string())),
        ("exec", _) => node.exec.push(line.value_at.of(line.value.to_string())),
        ("entrypoint", _) => node.command = Some(NodeCommand::Words(words(line.value))),
        ("args", _) => node.args.extend(words(line.value)),
        ("env", Some((key, value))) => {
            node.env.insert(key.into(), value.into());
        }
        ("sysctl", Some((key, value))) if key.starts_with("net.") => {
            node.sysctls.insert(key.into(), line.value_at.of(value.into()));
        }
        ("ipv6", _) => {
            let off = ["false", "False", "0", "no"].contains(&line.value);
            let key = "net.ipv6.conf.all.disable_ipv6";
            node.sysctls.insert(key.into(), line.value_at.of(u8::from(off).to_string()));
        }
        (key, _) => draft.leave_out(line.at, format!("{machine}[{key}]={}", line.value)),
    }
}

fn join(draft: &mut Draft, domains: BTreeMap<String, Vec<DomainMember>>) -> Read<()> {
    for (domain, mut members) in domains {
        let at = Position {
            line: members[0].end.defined.line() as u32,
            column: members[0].end.defined.column() as u32,
        };
        if members.len() == 2 {
            let macs: Vec<_> = members.iter_mut().map(|one| one.mac.take()).collect();
            let mut made = link([members.remove(0).end, members.remove(0).end]);
            if macs.iter().any(Option::is_some) {
                made.mac = macs;
            }
            draft.add_link(at, made);
            continue;
        }
        let switch = match draft.node(&domain) {
            None => domain.clone(),
            Some(_) => format!("domain-{domain}"),
        };
        draft.add_node(at, &switch, Node { kind: NodeKind::Switch, ..Node::default() })?;
        for (port, member) in members.into_iter().enumerate() {
            let mut made = link([member.end, at.of(format!("{switch}:p{port}"))]);
            if member.mac.is_some() {
                made.mac = vec![member.mac, None];
            }
            draft.add_link(at, made);
        }
    }
    Ok(())
}

/// Reads the common scripts, and the scripts and directories of all machines.
fn startups(draft: &mut Draft, machines: &[(String, Position)], folder: &Path) {
    // A machine's changes to the common directory end with the machine, although Kathara lets it write to the host.
    let shared = std::path::absolute(folder.join("shared")).ok().filter(|path| path.is_dir());
    for (machine, at) in machines {
        let Some(node) = draft.node(machine) else { continue };
        let mut script = |name: &str| {
            let path = folder.join(name);
            let text =
                std::fs::read_to_string(&path).ok().filter(|text| !text.trim().is_empty())?;
            node.script_files.insert(text.clone(), path.display().to_string());
            Some(Position { line: 1, column: 1 }.of(text))
        };
        // The common script runs first, at the end last. The lines of exec run after both.
        let starts = [script("shared.startup"), script(&format!("{machine}.startup"))];
        let ends = [script(&format!("{machine}.shutdown")), script("shared.shutdown")];
        node.exec.splice(0..0, starts.into_iter().flatten());
        node.shutdown.extend(ends.into_iter().flatten());
        let files = folder.join(machine);
        let texts = node.exec.iter().map(|line| line.value.as_str());
        if let Some(text) = renamed::preparation(texts, &files) {
            node.exec.insert(0, at.of(text));
        }
        if files.is_dir() {
            node.files = std::path::absolute(files).ok().map(|path| path.display().to_string());
        }
        if let Some(shared) = &shared {
            node.binds.push(at.of(format!("{}:/shared:O", shared.display())));
        }
    }
    const LEFT_OUT: [(&str, &str); 2] = [
        ("lab.dep", "machines start at once, as far as they do not wait for each other"),
        ("lab.ext", "interfaces of the host in collision domains"),
    ];
    for (name, why) in LEFT_OUT.iter().filter(|(name, _)| folder.join(name).exists()) {
        draft.leave_out(Position { line: 1, column: 1 }, format!("{name}: {why}"));
    }
}
