//! Lorentz's own check of a text, and scenarios of other emulators as topology files.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use lorentz_network::import::{Format, Imported};
use lorentz_network::topology::TopologyError;
use lorentz_network::{check as network_check, import as network_import, neighbours};

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::types::{CheckRequest, CheckResult, ImportRequest, ImportResult, Remark};

/// The schema of topology files, which the editor makes its forms from.
const SCHEMA: &str = include_str!("../../../docs/network.schema.json");
/// The description of this interface.
const INTERFACE: &str = include_str!("../../../docs/openapi.json");
/// The name of a text that has no path, in messages.
const UNNAMED: &str = "network.yaml";

/// `POST /api/v1/check`.
pub async fn check(State(app): State<Arc<App>>, body: Body) -> Answer {
    let request: CheckRequest = reply::json_of(body).await?;
    // Files that the text names are relative to its own.
    let name = match &request.path {
        Some(path) => app.root.full(path)?.display().to_string(),
        None => app.root.full(UNNAMED)?.display().to_string(),
    };
    let result = tokio::task::spawn_blocking(move || check_text(&name, &request.text)).await;
    reply::json(&result.map_err(Refusal::failed)?)
}

fn check_text(name: &str, text: &str) -> CheckResult {
    match network_check::plan_from_text(name, text) {
        Ok(plan) => {
            let warning = |message: String| Remark { line: 0, column: 0, message };
            let warnings = neighbours::advice(&plan).into_iter().map(warning).collect();
            CheckResult { errors: Vec::new(), warnings }
        }
        Err(error) => CheckResult { errors: vec![remark(error)], warnings: Vec::new() },
    }
}

fn remark(error: TopologyError) -> Remark {
    Remark { line: error.line, column: error.column, message: error.what }
}

/// `POST /api/v1/import`.
pub async fn import(State(app): State<Arc<App>>, body: Body) -> Answer {
    let request: ImportRequest = reply::json_of(body).await?;
    let format = request.format.as_deref().map(str::parse::<Format>).transpose();
    let format = format.map_err(|error| Refusal::wrong(format!("format: {error}")))?;
    let result = tokio::task::spawn_blocking(move || {
        let imported = match (&request.path, &request.text, format) {
            (Some(path), None, _) => {
                // No link leads out of the directory.
                app.root.read(path)?;
                network_import::read(&app.root.full(path)?, format)
            }
            (None, Some(text), Some(format)) => import_text(text, format)?,
            (None, Some(_), None) => {
                return Err(Refusal::wrong("format: expected core, imn, containerlab or kathara"))
            }
            _ => return Err(Refusal::wrong("path, text: expected one of both")),
        };
        let wrong = |error: anyhow::Error| Refusal::wrong(reply::one_line(&format!("{error:#}")));
        let Imported { topology, left_out, .. } = imported.map_err(wrong)?;
        let yaml = topology.to_yaml().map_err(Refusal::failed)?;
        Ok(ImportResult { yaml, notes: left_out.iter().map(ToString::to_string).collect() })
    });
    reply::json(&result.await.map_err(Refusal::failed)??)
}

/// Imports a text by way of a file, in a directory of its own: scenarios of some formats name files beside them.
fn import_text(text: &str, format: Format) -> Result<anyhow::Result<Imported>, Refusal> {
    let folder = tempfile::tempdir().map_err(Refusal::failed)?;
    let name = match format {
        Format::Lorentz => "lab.yaml",
        Format::Core => "lab.xml",
        Format::Imn => "lab.imn",
        Format::Containerlab => "lab.clab.yml",
        Format::Kathara => "lab.conf",
    };
    let path = folder.path().join(name);
    let written =
        std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(Refusal::failed)?;
    Ok(read_named(&path, format))
}

/// Reads the file; errors in it name it without its directory.
fn read_named(path: &Path, format: Format) -> anyhow::Result<Imported> {
    network_import::read(path, Some(format)).map_err(|error| {
        match error.downcast::<TopologyError>() {
            Ok(error) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                TopologyError { file, ..error }.into()
            }
            Err(error) => error,
        }
    })
}

/// `GET /api/v1/schema`.
pub async fn schema() -> Answer {
    Ok(reply::with_type(SCHEMA, "application/json"))
}

/// `GET /api/v1/openapi.json`.
pub async fn interface() -> Answer {
    Ok(reply::with_type(INTERFACE, "application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = "name: lab\ntopology:\n  nodes: {a: {}, b: {}}\n  links:\n    - {endpoints: ['a:eth0', 'b:eth0'], delay: 5ms}\n";

    #[test]
    fn an_error_has_its_place() {
        let good = check_text("/x/lab.yaml", LAB);
        assert_eq!(good.errors, []);
        let wrong = check_text("/x/lab.yaml", &LAB.replace("5ms", "fast"));
        let [error] = &wrong.errors[..] else { panic!("{wrong:?}") };
        assert_eq!((error.line, error.column), (5, 48));
        assert!(error.message.contains("fast"), "{error:?}");
    }

    #[test]
    fn a_text_is_imported_by_its_format() {
        let text = "name: clab\ntopology:\n  nodes:\n    a: {kind: linux, image: x}\n    b: {kind: linux, image: x}\n  links:\n    - endpoints: ['a:eth1', 'b:eth1']\n";
        let imported = import_text(text, Format::Containerlab).unwrap().unwrap();
        assert_eq!(imported.topology.topology.nodes.len(), 2);
        let error = import_text("a[0]=", Format::Core).unwrap().unwrap_err();
        assert!(error.to_string().starts_with("lab.xml:"), "{error}");
    }
}
