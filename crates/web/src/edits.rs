//! Nodes and links that come and go: the command lines of `lorentz node` and `lorentz link`, and the topology that runs.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::IntoResponse;
use lorentz_network::plan::Endpoint;

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::types::{NewLink, NewNode, NewNodeKind, OwnLink};
use crate::words::{container, impairments, words, Words};

/// `GET /api/v1/networks/NAME/topology`: as `lorentz inspect --yaml`.
pub async fn topology(State(app): State<Arc<App>>, Path(network): Path<String>) -> Answer {
    let found = tokio::task::spawn_blocking(move || {
        lorentz_network::topology_of(&app.state, &network)?.to_yaml()
    });
    let yaml = found.await.map_err(Refusal::failed)?;
    let unknown = |error: anyhow::Error| Refusal::unknown(reply::one_line(&format!("{error:#}")));
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, yaml.map_err(unknown)?).into_response())
}

/// Returns the command line that adds a link, without `lorentz`.
pub fn link_add(new: &NewLink) -> Result<Words, Refusal> {
    let ends = [end_of("end", &new.end)?, end_of("other", &new.other)?];
    let mut all = words(&["link", "add", &ends[0], &ends[1]]);
    all.extend(["--network".into(), container(&new.network)?]);
    for (key, pair) in [("ipv4", &new.ipv4), ("ipv6", &new.ipv6), ("mac", &new.mac)] {
        let Some(pair) = pair else { continue };
        let values = pair.iter().map(|value| one_value(key, value.as_deref().unwrap_or("-")));
        let values = values.collect::<Result<Words, _>>()?;
        all.extend([format!("--{key}"), values.join(",")]);
    }
    if let Some(mtu) = new.mtu {
        all.extend(["--mtu".into(), mtu.to_string()]);
    }
    all.extend(impairments(&new.set)?);
    all.extend(new.down.then(|| "--down".to_string()));
    Ok(all)
}

/// Returns the command line that removes a link.
pub fn link_rm(network: &str, end: &str) -> Result<Words, Refusal> {
    Ok(words(&["link", "rm", &end_of("end", end)?, "--network", &container(network)?]))
}

/// Returns the command line that adds a node.
pub fn node_add(new: &NewNode) -> Result<Words, Refusal> {
    let mut all = words(&["node", "add", &container(&new.name)?]);
    all.extend(["--network".into(), container(&new.network)?]);
    let kind = match new.kind {
        None | Some(NewNodeKind::Process) => None,
        Some(NewNodeKind::Switch) => Some("switch"),
        Some(NewNodeKind::Hub) => Some("hub"),
    };
    all.extend(kind.into_iter().flat_map(|kind| words(&["--kind", kind])));
    all.extend(new.stp.then(|| "--stp".to_string()));
    for link in &new.link {
        all.extend(["--link".into(), own_link(&new.name, link)?]);
    }
    all.extend(impairments(&new.set)?);
    if let Some(image) = &new.image {
        let is_name = !image.is_empty() && !image.starts_with('-');
        let wrong = || Refusal::wrong("image: expected the name of an image");
        all.extend(["--image".into(), is_name.then(|| image.clone()).ok_or_else(wrong)?]);
    }
    all.extend(new.private.then(|| "--private".to_string()));
    for (key, settings) in [("env", &new.env), ("sysctl", &new.sysctl)] {
        for setting in settings {
            all.extend([format!("--{key}"), checked_setting(key, setting)?]);
        }
    }
    all.extend(new.exec.iter().flat_map(|line| words(&["--exec", line])));
    let command = shlex::split(&new.command)
        .ok_or_else(|| Refusal::wrong("command: expected quotes in pairs"))?;
    if !command.is_empty() {
        all.push("--".into());
        all.extend(command);
    }
    Ok(all)
}

/// Returns the command line that removes a node.
pub fn node_rm(network: &str, name: &str) -> Result<Words, Refusal> {
    Ok(words(&["node", "rm", &container(name)?, "--network", &container(network)?]))
}

/// Returns the command line that adds a change to come, or another whose word is `verb`. The change follows these two words.
pub fn schedule(verb: &str, network: &str, change: &str) -> Result<Words, Refusal> {
    let change = lorentz_network::parse_change(change)
        .map_err(|what| Refusal::wrong(format!("change: {what}")))?;
    let network = container(network)?;
    Ok(words(&["schedule", verb, &change.to_string(), "--network", &network]))
}

fn end_of(key: &str, text: &str) -> Result<String, Refusal> {
    let end: Result<Endpoint, _> = text.parse();
    Ok(end.map_err(|error| Refusal::wrong(format!("{key}: {error}")))?.to_string())
}

/// Checks that a value is one of a list that commas part. The command checks the rest.
fn one_value(key: &str, value: &str) -> Result<String, Refusal> {
    let is_one = !value.is_empty() && !value.contains(',');
    let wrong = || Refusal::wrong(format!("{key}: expected an address for each end, or null"));
    is_one.then(|| value.to_string()).ok_or_else(wrong)
}

fn own_link(node: &str, link: &OwnLink) -> Result<String, Refusal> {
    end_of("link", &format!("{node}:{}", link.interface))?;
    let other = end_of("link", &link.other)?;
    let address = link.address.as_deref().map(|address| one_value("link", address)).transpose()?;
    let address = address.map(|address| format!(",{address}")).unwrap_or_default();
    Ok(format!("{}={other}{address}", link.interface))
}

fn checked_setting(key: &str, text: &str) -> Result<String, Refusal> {
    let is_setting = text.find('=').is_some_and(|at| at > 0) && !text.starts_with('-');
    let wrong = || Refusal::wrong(format!("{key}: expected KEY=VALUE"));
    is_setting.then(|| text.to_string()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::shown;

    fn node(json: &str) -> Result<String, String> {
        let new: NewNode = serde_json::from_str(json).unwrap();
        node_add(&new).map(|words| shown(&words)).map_err(|refusal| refusal.1)
    }

    fn link(json: &str) -> Result<String, String> {
        let new: NewLink = serde_json::from_str(json).unwrap();
        link_add(&new).map(|words| shown(&words)).map_err(|refusal| refusal.1)
    }

    #[test]
    fn a_change_to_come_is_written_as_in_a_file() {
        let change = r#"{"at": "90s", "link": "a:eth0", "set": {"loss": "1%"}}"#;
        assert_eq!(
            schedule("rm", "lab", change).map(|words| shown(&words)).map_err(|refusal| refusal.1),
            Ok("lorentz schedule rm '{at: 1m30s, link: a:eth0, set: {loss: 1%}}' --network lab"
                .into())
        );
        assert!(schedule("add", "lab", "soon").is_err());
    }

    #[test]
    fn a_node_has_the_flags_of_the_command() {
        for (json, expected) in [
            (r#"{"network": "lab", "name": "c"}"#, "lorentz node add c --network lab"),
            (
                r#"{"network": "lab", "name": "s", "kind": "switch", "stp": true}"#,
                "lorentz node add s --network lab --kind switch --stp",
            ),
            (
                r#"{"network": "lab", "name": "c", "kind": "process", "link": [
                    {"interface": "eth0", "other": "s:3", "address": "10.0.0.3/24"},
                    {"interface": "eth1", "other": "a:eth1"}], "set": {"delay": "5ms"},
                    "env": ["A=b c"], "exec": ["ip route"], "command": "sh -c 'echo a; true'"}"#,
                "lorentz node add c --network lab --link eth0=s:3,10.0.0.3/24 --link eth1=a:eth1 \
                 --delay 5ms --env 'A=b c' --exec 'ip route' -- sh -c 'echo a; true'",
            ),
        ] {
            assert_eq!(node(json).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_link_has_the_flags_of_the_command() {
        let json = r#"{"network": "lab", "end": "a:eth1", "other": "s:4", "ipv4": ["10.0.0.1/24", null],
            "mtu": 1400, "set": {"loss": "1%"}, "down": true}"#;
        let expected = "lorentz link add a:eth1 s:4 --network lab --ipv4 10.0.0.1/24,- --mtu 1400 \
                        --loss 1% --down";
        assert_eq!(link(json).as_deref(), Ok(expected));
    }

    #[test]
    fn nothing_wrong_becomes_a_word_of_a_command() {
        let of_node = |rest: &str| node(&format!(r#"{{"network": "n", "name": "c", {rest}}}"#));
        for (refused, key) in [
            (node(r#"{"network": "n", "name": "--json"}"#), "name"),
            (of_node(r#""link": [{"interface": "-x y", "other": "a"}]"#), "link"),
            (of_node(r#""link": [{"interface": "e", "other": "a:e", "address": "1,2"}]"#), "link"),
            (of_node(r#""image": "--pull""#), "image"),
            (of_node(r#""env": ["--json=1"]"#), "env"),
            (of_node(r#""sysctl": ["x"]"#), "sysctl"),
            (of_node(r#""set": {"loss": "most"}"#), "loss"),
            (of_node(r#""command": "sh -c 'x""#), "command"),
            (link(r#"{"network": "n", "end": "a", "other": "b:e"}"#), "end"),
            (
                link(r#"{"network": "n", "end": "a:e", "other": "b:e", "ipv4": ["1,2", null]}"#),
                "ipv4",
            ),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.starts_with(&format!("{key}: ")), "{refused}");
        }
    }
}
