//! The manual page `lorentz.yaml(5)` of topology files, from their JSON schema.

use serde_json::{Map, Value};

/// The schema that the crate lorentz-network keeps.
const SCHEMA: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.schema.json"));

const EXAMPLE: &str = "\
name: lab
tdf: 10
topology:
  nodes:
    a: {}
    b: {command: iperf3 -s}
  links:
    - {endpoints: ['a:eth0', 'b:eth0'], rate: 10mbit, delay: 20ms}";

/// Types with keys in the order of the page, and their headings. All other types are told where they are used.
const SECTIONS: [(&str, &str); 13] = [
    ("Topology", "TOPOLOGY"),
    ("Node", "NODES"),
    ("Link", "LINKS"),
    ("Impairments", "IMPAIRMENTS"),
    ("Jitter", "JITTER"),
    ("GilbertElliott", "LOSS IN BURSTS"),
    ("Queue", "QUEUES"),
    ("Radio", "RADIO"),
    ("ScheduledChange", "SCHEDULE"),
    ("Strobe", "STROBES OF CLOCKS"),
    ("Faults", "RANDOM FAULTS OF CLOCKS"),
    ("Mobility", "MOBILITY"),
    ("ScriptFile", "MOBILITY SCRIPTS"),
];

/// Returns the page in the language of man(7).
pub fn page() -> serde_json::Result<String> {
    let schema: Value = serde_json::from_str(SCHEMA)?;
    let types = schema["$defs"].as_object().cloned().unwrap_or_default();
    let mut page = format!(
        ".TH LORENTZ.YAML 5 \"\" \"Lorentz {}\" \"File Formats\"\n\
         .SH NAME\nlorentz.yaml \\- topology files of lorentz(1)\n\
         .SH DESCRIPTION\n\\fBlorentz up\\fR makes a network of nodes and links from such a file.\n\
         .PP\n.nf\n{}\n.fi\n.SH KEYS\n",
        env!("CARGO_PKG_VERSION"),
        escaped(EXAMPLE),
    );
    page += &keys(&schema, &types);
    for (name, heading) in SECTIONS {
        let Some(section) = types.get(name) else { continue };
        page += &format!(".SH \"{heading}\"\n{}\n", escaped(text_of(section)));
        page += &keys(section, &types);
    }
    page += ".SH \"SEE ALSO\"\n\\fBlorentz\\-up\\fR(1), \\fBlorentz\\-link\\fR(1), \\fBlorentz\\-node\\fR(1)\n";
    Ok(page)
}

/// The keys of an object, each with its meaning.
fn keys(object: &Value, types: &Map<String, Value>) -> String {
    let required = object["required"].as_array().cloned().unwrap_or_default();
    let Some(properties) = object["properties"].as_object() else { return String::new() };
    let mut text = String::new();
    for (key, value) in properties {
        text += &format!(".TP\n\\fB{}\\fR\n{}", escaped(key), escaped(text_of(value)));
        if required.contains(&Value::from(key.as_str())) {
            text += " (required)";
        }
        text.push('\n');
        for (word, meaning) in choices(value, types) {
            text += &format!(".br\n\\fI{}\\fR: {}\n", escaped(&word), escaped(&meaning));
        }
    }
    text
}

/// The words that a key takes, with their meanings, if it takes words.
fn choices(value: &Value, types: &Map<String, Value>) -> Vec<(String, String)> {
    // An optional value is anyOf its type and null.
    let referred = value["$ref"].as_str().or_else(|| value["anyOf"][0]["$ref"].as_str());
    let of = referred.and_then(|path| types.get(path.rsplit('/').next()?)).unwrap_or(value);
    let words = of["oneOf"].as_array().into_iter().flatten();
    words
        .filter_map(|one| Some((one["const"].as_str()?.to_string(), text_of(one).to_string())))
        .collect()
}

fn text_of(value: &Value) -> &str {
    value["description"].as_str().unwrap_or_default()
}

/// A line that begins with a dot or an apostrophe would be a request.
fn escaped(text: &str) -> String {
    let lines = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = lines.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_the_schema_stands_on_the_page() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("a schema");
        let page = page().expect("a page");
        let types = schema["$defs"].as_object().expect("types").values();
        for object in types.chain([&schema]) {
            for key in object["properties"].as_object().into_iter().flat_map(Map::keys) {
                assert!(page.contains(&format!(".TP\n\\fB{}\\fR\n", escaped(key))), "{key}");
            }
        }
        assert!(page.contains("\\fIhub\\fR: A hub: sends each frame to all other ports"));
    }
}
