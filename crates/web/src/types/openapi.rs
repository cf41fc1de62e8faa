//! The description of the interface, `docs/openapi.json`, made of the types and of this list of paths. A test compares it with the
//! stored one, and another asks the server for each path.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{json, Map, Value};

use super::*;

/// A path: its method and place, a sentence, parameters (`*` before those that must be given), the body, and the answer.
struct Route {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    body: Option<Schema>,
    answer: Result<Schema, &'static str>,
}

/// Returns the description.
pub fn describe() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|all| {
        all.definitions_path = "/components/schemas".into();
        all.meta_schema = None;
    });
    let mut of = settings.into_generator();
    let failure = of.subschema_for::<Failure>();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes(&mut of) {
        let mut answer = match &route.answer {
            Ok(schema) => json!({ "content": { "application/json": { "schema": schema } } }),
            Err("websocket") => json!({}),
            Err(kind) => json!({ "content": { *kind: { "schema": { "type": "string" } } } }),
        };
        answer["description"] = json!("the answer");
        let status = if route.answer == Err("websocket") { "101" } else { "200" };
        let mut responses = Map::new();
        responses.insert(status.into(), answer);
        let wrong = json!({
            "description": "refused: one line says why",
            "content": { "application/json": { "schema": failure } },
        });
        responses.insert("default".into(), wrong);
        let mut entry = json!({
            "summary": route.about,
            "parameters": route.parameters.iter().map(|one| parameter(route.path, *one)).collect::<Vec<_>>(),
            "responses": responses,
        });
        if let Some(body) = route.body {
            let kind = if route.method == "put" { "text/plain" } else { "application/json" };
            entry["requestBody"] =
                json!({ "required": true, "content": { kind: { "schema": body } } });
        }
        if route.method != "get" && route.path != "/api/v1/session" {
            entry["security"] = json!([{ "session": [], "change": [] }]);
        }
        if route.path == "/metrics" {
            entry["security"] = json!([{ "metrics": [] }]);
        }
        let all = paths.entry(route.path).or_insert_with(|| json!({}));
        all[route.method] = entry;
    }
    // Both are sent by the stream of changes alone.
    for schema in [of.subschema_for::<StateChange>(), of.subschema_for::<Tick>()] {
        assert!(schema.as_object().is_some());
    }
    for schema in [
        of.subschema_for::<TerminalSize>(),
        of.subschema_for::<TerminalEnd>(),
        of.subschema_for::<CaptureDropped>(),
    ] {
        assert!(schema.as_object().is_some());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "lorentz-web",
            "version": "1",
            "license": { "name": "MIT OR Apache-2.0" },
            "description": "What the page of Lorentz asks its server; docs/web.md explains it. Instants are decimal text, in nanoseconds.",
        },
        "security": [{ "session": [] }],
        "paths": paths,
        "components": {
            "schemas": of.take_definitions(true),
            "securitySchemes": {
                "session": { "type": "apiKey", "in": "cookie", "name": "lorentz-PORT" },
                "change": { "type": "apiKey", "in": "header", "name": "X-Lorentz-Token" },
                "metrics": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn parameter(path: &str, (name, about): (&str, &str)) -> Value {
    let bare = name.trim_start_matches('*');
    let in_path = path.contains(&format!("{{{bare}}}"));
    let place = match () {
        () if in_path => "path",
        () if bare.contains('-') => "header",
        () => "query",
    };
    json!({
        "name": bare, "in": place, "required": in_path || name.starts_with('*'),
        "description": about, "schema": { "type": "string" },
    })
}

fn routes(of: &mut SchemaGenerator) -> Vec<Route> {
    let get = |path, about, parameters, answer| Route {
        method: "get",
        path,
        about,
        parameters,
        body: None,
        answer,
    };
    let post = |path, about, body, answer| Route {
        method: "post",
        path,
        about,
        parameters: &[],
        body: Some(body),
        answer,
    };
    let text = Schema::try_from(json!({ "type": "string" })).unwrap();
    vec![
        post("/api/v1/session", "Begins a session: sets its cookie", of.subschema_for::<SessionRequest>(), Ok(of.subschema_for::<Session>())),
        get("/api/v1/session", "The token of changes, for a second tab", &[], Ok(of.subschema_for::<Session>())),
        get("/api/v1/about", "The server", &[], Ok(of.subschema_for::<About>())),
        get("/api/v1/state", "Everything that runs", &[], Ok(of.subschema_for::<State>())),
        get(
            "/api/v1/live",
            "Server-sent events: `state` (State) first, `change` (StateChange) up to five times a second, `tick` (Tick) each 5 s",
            &[("Last-Event-ID", "the last event that the page has")],
            Err("text/event-stream"),
        ),
        post("/api/v1/do", "Carries out an action, or shows its command line", of.subschema_for::<ActionRequest>(), Ok(of.subschema_for::<ActionResult>())),
        get("/api/v1/files", "Topology files and scenarios", &[], Ok(of.subschema_for::<Vec<FileEntry>>())),
        get("/api/v1/files/{path}", "A file's text; its version is the header ETag", &[("path", "below the directory")], Err("text/plain")),
        Route {
            method: "put",
            path: "/api/v1/files/{path}",
            about: "Writes a file; one of both conditions is needed",
            parameters: &[
                ("path", "below the directory"),
                ("If-Match", "the version that was read"),
                ("If-None-Match", "`*`: the file is new"),
            ],
            body: Some(text),
            answer: Ok(of.subschema_for::<Written>()),
        },
        post("/api/v1/check", "Lorentz's check of a text", of.subschema_for::<CheckRequest>(), Ok(of.subschema_for::<CheckResult>())),
        post("/api/v1/import", "A scenario as a topology file", of.subschema_for::<ImportRequest>(), Ok(of.subschema_for::<ImportResult>())),
        get("/api/v1/schema", "The JSON schema of topology files", &[], Err("application/json")),
        get("/api/v1/openapi.json", "This description", &[], Err("application/json")),
        get("/api/v1/containers/{name}/waits", "Who waits for what until when", &[("name", "the container")], Ok(of.subschema_for::<Vec<Wait>>())),
        get(
            "/api/v1/networks/{name}/topology",
            "The topology file of a network as it runs",
            &[("name", "the network")],
            Err("text/plain"),
        ),
        get(
            "/api/v1/networks/{name}/nodes/{node}/output",
            "What a node's programs print",
            &[("name", "the network"), ("node", "the node"), ("from", "the first byte")],
            Ok(of.subschema_for::<Output>()),
        ),
        get(
            "/api/v1/history",
            "The past of a network or an experiment, as far as the server has seen it",
            &[("*kind", "`network` or `experiment`"), ("*name", "its name")],
            Ok(of.subschema_for::<History>()),
        ),
        get("/api/v1/report", "What happened in a network, as one file", &[("*network", "its name")], Err("text/html")),
        get(
            "/api/v1/terminal",
            "WebSocket: bytes of a terminal, both ways; TerminalSize to the server, TerminalEnd last",
            &[("*container", "its name"), ("columns", "the width"), ("rows", "the height")],
            Err("websocket"),
        ),
        get(
            "/api/v1/capture",
            "WebSocket: pcapng of an interface; CaptureDropped when the page reads too slowly",
            &[("*network", "its name"), ("*end", "NODE:INTERFACE")],
            Err("websocket"),
        ),
        get("/metrics", "Text for Prometheus", &[], Err("text/plain")),
    ]
}
