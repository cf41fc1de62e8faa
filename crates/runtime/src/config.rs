//! The config.json of a bundle, as the engine wrote it, and the changes that we make to it before `libcontainer` makes the
//! container.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context};
use libcontainer::oci_spec::runtime::Spec;
use lorentz_checkpoint::{BundleMount, WallPolicy};
use lorentz_clock::{Rate, Span, NANOS_PER_SEC};
use lorentz_container::{Newcomers, IDLE_ANNOTATION, NARROW_CAPSET_ANNOTATION};
use lorentz_control::{ClockSettings, HostNow, WhichClock};
use lorentz_inject::Profile;
use serde_json::{json, Value};

use crate::annotations::{merge_offset, Asked};
use crate::rights::Rights;
use crate::sandbox;

/// Annotations that hold the id of a container's pod.
const POD_ANNOTATIONS: [&str; 2] =
    ["io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"];

/// A bundle's config.json.
pub struct Config {
    value: Value,
    bundle: PathBuf,
}

/// The source of a container's time.
pub enum Time {
    /// A clock of Lorentz.
    Clock(Box<WhichClock>),
    /// An existing time namespace.
    Namespace,
}

/// The clock that a bundle asks for.
pub struct Wanted {
    /// The clock.
    pub time: Time,
    /// The container's name for `lorentz`, if it has one beside its id.
    pub name: Option<String>,
    /// The id of its pod, if any.
    pub pod: Option<String>,
    /// All settings as text, for comparison with other containers of the pod.
    pub text: String,
    /// How the container receives programs that enter from outside.
    pub newcomers: Newcomers,
    /// The wall clock after a restore.
    pub restored_wall: WallPolicy,
    /// The rate after a restore, if it is to be another one than at the checkpoint.
    pub restored_rate: Option<Rate>,
}

impl Config {
    /// Reads the config.json of `bundle`.
    pub fn load(bundle: &Path) -> anyhow::Result<Config> {
        let bundle =
            fs::canonicalize(bundle).with_context(|| format!("bundle {}", bundle.display()))?;
        let path = bundle.join("config.json");
        let shown = path.display();
        let text = fs::read(&path).with_context(|| format!("{shown}"))?;
        let value: Value = serde_json::from_slice(&text).with_context(|| format!("{shown}"))?;
        if !value.is_object() {
            bail!("{shown}: expected an object as of the OCI runtime specification");
        }
        let config = Config { value, bundle };
        config.check().with_context(|| format!("{shown}"))?;
        Ok(config)
    }

    /// Checks the fields that every container must have. `libcontainer` checks the others.
    fn check(&self) -> anyhow::Result<()> {
        if self.value["ociVersion"].as_str().is_none() {
            bail!("ociVersion is missing; expected 1.0.0 or later, below 2");
        }
        for part in ["process", "root", "linux"] {
            if !self.value[part].is_object() {
                bail!("{part} is missing; expected an object");
            }
        }
        let words = self.value["process"]["args"].as_array();
        if !words.is_some_and(|words| !words.is_empty() && words.iter().all(Value::is_string)) {
            bail!("process.args is missing; expected a program and its arguments");
        }
        if self.value["linux"]["seccomp"]["listenerPath"].is_string() {
            bail!("linux.seccomp.listenerPath: a process can have one listener, and the clock's monitor needs it");
        }
        Ok(())
    }

    /// Returns the directory of the bundle.
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// Returns the program and its arguments.
    pub fn command(&self) -> Vec<std::ffi::OsString> {
        self.strings("process", "args").into_iter().map(Into::into).collect()
    }

    /// Returns the `process` object of the container's program.
    pub fn process(&self) -> &Value {
        &self.value["process"]
    }

    /// Whether the container's first process executes no program ([`IDLE_ANNOTATION`]).
    pub fn is_idle(&self) -> bool {
        self.annotation(IDLE_ANNOTATION) == Some("true")
    }

    /// Whether programs get those of the capabilities they ask for that they may have ([`NARROW_CAPSET_ANNOTATION`]).
    pub fn narrows_capset(&self) -> bool {
        self.annotation(NARROW_CAPSET_ANNOTATION) == Some("true")
    }

    /// Whether the program gets a terminal.
    pub fn wants_terminal(&self) -> bool {
        self.process()["terminal"] == true
    }

    /// Replaces the bundle's program, and adds annotations.
    pub fn change(&mut self, annotations: &[String], command: &[String]) -> anyhow::Result<()> {
        // A clock on the command line replaces that of the bundle; it does not modify it.
        if let (false, Some(all)) =
            (annotations.is_empty(), self.value["annotations"].as_object_mut())
        {
            all.retain(|key, _| !key.starts_with("lorentz."));
        }
        for annotation in annotations {
            let (key, value) = annotation
                .split_once('=')
                .with_context(|| format!("--annotation {annotation}: expected KEY=VALUE"))?;
            self.value["annotations"][key] = value.into();
        }
        if !command.is_empty() {
            self.value["process"]["args"] = command.into();
        }
        Ok(())
    }

    fn strings(&self, part: &str, list: &str) -> Vec<&str> {
        let list = self.value[part][list].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.value["annotations"][key].as_str()
    }

    /// Returns the clock that the annotations, the program's variables and the time namespace ask for.
    pub fn wanted(&self, host: &HostNow) -> anyhow::Result<Wanted> {
        let annotations = self.value["annotations"].as_object().into_iter().flatten();
        let annotations =
            annotations.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        let mut asked = Asked::read(annotations, self.strings("process", "env"))?;
        let namespace = self.time_namespace();
        if namespace.is_some_and(|namespace| namespace["path"].is_string()) {
            if !asked.is_empty() {
                bail!("linux.namespaces: a time namespace to join, and {} as well; expected one of them", asked.places());
            }
            return Ok(Wanted {
                time: Time::Namespace,
                name: None,
                pod: None,
                text: String::new(),
                newcomers: Newcomers::Ignore,
                restored_wall: WallPolicy::default(),
                restored_rate: None,
            });
        }
        if namespace.is_some() {
            let offsets = [
                ("monotonic", &mut asked.clock.monotonic),
                ("boottime", &mut asked.clock.boottime),
            ];
            for (name, place) in offsets {
                if let Some(offset) = self.time_offset(name)? {
                    merge_offset(place, name, offset)?;
                }
            }
        }
        let which = asked.clock.which(host).map_err(|wrong| asked.refusal(&wrong))?;
        let pod = POD_ANNOTATIONS.iter().find_map(|key| self.annotation(key));
        Ok(Wanted {
            time: Time::Clock(Box::new(which)),
            pod: pod.map(str::to_string),
            text: format!("{:?}", asked.clock),
            newcomers: asked.newcomers.unwrap_or(Newcomers::Attach),
            restored_wall: asked.restored_wall.unwrap_or_default(),
            restored_rate: asked.restored_rate,
            name: asked.name,
        })
    }

    /// Its root file system.
    pub fn root(&self) -> anyhow::Result<PathBuf> {
        let path = self.value["root"]["path"].as_str();
        Ok(self.bundle.join(path.context("root.path is missing; expected the root file system")?))
    }

    /// The configuration in the types of `libcontainer`.
    pub fn spec(&self) -> anyhow::Result<Spec> {
        serde_json::from_value(self.value.clone()).context("config.json")
    }

    /// The existing namespace of this kind that the container joins.
    pub fn namespace_path(&self, kind: &str) -> Option<PathBuf> {
        let namespaces = self.value["linux"]["namespaces"].as_array()?;
        let namespace = namespaces.iter().find(|namespace| namespace["type"] == kind)?;
        namespace["path"].as_str().map(PathBuf::from)
    }

    /// Its mounts.
    pub fn mounts(&self) -> anyhow::Result<Vec<BundleMount>> {
        let mounts = self.value["mounts"].as_array().into_iter().flatten();
        let read = |mount: &Value| {
            let text = |field: &str| mount[field].as_str();
            let destination = text("destination").context("mounts: a destination is missing")?;
            let options: Vec<&str> = mount["options"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let is_bind = text("type") == Some("bind")
                || options.iter().any(|option| matches!(*option, "bind" | "rbind"));
            let source = text("source").filter(|_| is_bind).map(|source| self.bundle.join(source));
            Ok(BundleMount { destination: destination.to_string(), source })
        };
        mounts.map(read).collect()
    }

    fn time_namespace(&self) -> Option<&Value> {
        let namespaces = self.value["linux"]["namespaces"].as_array()?;
        namespaces.iter().find(|namespace| namespace["type"] == "time")
    }

    /// Returns an offset of the bundle's time namespace; none if it is zero.
    fn time_offset(&self, clock: &str) -> anyhow::Result<Option<Span>> {
        let offset = &self.value["linux"]["timeOffsets"][clock];
        if offset.is_null() {
            return Ok(None);
        }
        let expected = || format!("linux.timeOffsets.{clock}: expected secs and nanosecs");
        let number = |field: &str| match &offset[field] {
            Value::Null => Some(0),
            number => number.as_i64(),
        };
        let secs = number("secs").with_context(expected)?;
        let nanos = number("nanosecs").with_context(expected)?;
        let sum = i128::from(secs) * i128::from(NANOS_PER_SEC) + i128::from(nanos);
        let span = i64::try_from(sum).map(Span).with_context(expected)?;
        Ok((span != Span::ZERO).then_some(span))
    }

    /// Converts the config.json to the one that `libcontainer` gets. Paths become absolute. The process gets the capabilities
    /// needed to come onto a clock. A time namespace stays if the kernel alone provides the time, and goes if the shim does. Also
    /// returns the capabilities that the program keeps.
    pub fn adapt(mut self, time: &Time) -> anyhow::Result<(Value, Option<Rights>)> {
        let root = &mut self.value["root"]["path"];
        let path = root.as_str().context("root.path is missing; expected the root file system")?;
        let absolute = self.bundle.join(path);
        *root = absolute.to_str().context("root.path: expected UTF-8")?.into();
        if let Time::Clock(which) = time {
            match which.as_ref() {
                WhichClock::New(settings) if settings.offsets_only => {
                    self.set_time_namespace(Some(settings));
                }
                _ => self.set_time_namespace(None),
            }
        }
        let rights = Rights::widen(&mut self.value["process"])?;
        Ok((self.value, rights))
    }

    /// Returns the seccomp profile of all programs of the container.
    pub fn profile(&self) -> anyhow::Result<Option<Profile>> {
        sandbox::profile(&self.value["linux"]["seccomp"])
    }

    fn set_time_namespace(&mut self, settings: Option<&ClockSettings>) {
        let linux = &mut self.value["linux"];
        if let Some(namespaces) = linux["namespaces"].as_array_mut() {
            namespaces.retain(|namespace| namespace["type"] != "time");
        }
        let Some(settings) = settings else {
            linux.as_object_mut().and_then(|linux| linux.remove("timeOffsets"));
            return;
        };
        if !linux["namespaces"].is_array() {
            linux["namespaces"] = json!([]);
        }
        if let Some(namespaces) = linux["namespaces"].as_array_mut() {
            namespaces.push(json!({ "type": "time" }));
        }
        let parts = |span: Span| {
            let (secs, nanos) =
                (span.0.div_euclid(NANOS_PER_SEC), span.0.rem_euclid(NANOS_PER_SEC));
            json!({ "secs": secs, "nanosecs": nanos })
        };
        linux["timeOffsets"] =
            json!({ "monotonic": parts(settings.monotonic), "boottime": parts(settings.boottime) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lorentz_clock::{RealInstant, WallTime};

    const HOST: HostNow = HostNow {
        real: RealInstant(1_000_000_000_000),
        wall: WallTime { secs: 1_700_000_000, nanos: 0 },
        boot: Span(1_000_000_000_000),
    };

    fn config(linux: Value, annotations: Value) -> Config {
        let value = json!({
            "ociVersion": "1.0.2", "root": {"path": "rootfs"}, "linux": linux,
            "process": {"args": ["sh"], "capabilities": {}}, "annotations": annotations,
        });
        Config { value, bundle: "/b".into() }
    }

    fn settings(wanted: &Wanted) -> &ClockSettings {
        match &wanted.time {
            Time::Clock(which) => match which.as_ref() {
                WhichClock::New(settings) => settings,
                WhichClock::Of(other) => panic!("the clock of {other}"),
            },
            Time::Namespace => panic!("a namespace"),
        }
    }

    fn offsets() -> Value {
        json!({
            "namespaces": [{"type": "pid"}, {"type": "time"}],
            "timeOffsets": {"monotonic": {"secs": 5, "nanosecs": 7}},
        })
    }

    #[test]
    fn offsets_alone_are_the_kernels_work() {
        let config = config(offsets(), json!({}));
        let wanted = config.wanted(&HOST).unwrap();
        assert!(settings(&wanted).offsets_only);
        let (value, rights) = config.adapt(&wanted.time).unwrap();
        assert!(rights.is_some());
        assert_eq!(value["linux"]["namespaces"], json!([{"type": "pid"}, {"type": "time"}]));
        assert_eq!(value["linux"]["timeOffsets"]["monotonic"], json!({"secs": 5, "nanosecs": 7}));
        assert_eq!(value["root"]["path"], "/b/rootfs");
    }

    #[test]
    fn offsets_and_a_rate_are_a_clock_without_a_namespace() {
        let config = config(offsets(), json!({"lorentz.rate": "10"}));
        let wanted = config.wanted(&HOST).unwrap();
        assert_eq!(settings(&wanted).monotonic, Span(5_000_000_007));
        let (value, rights) = config.adapt(&wanted.time).unwrap();
        assert!(rights.is_some());
        assert_eq!(value["linux"]["namespaces"], json!([{"type": "pid"}]));
        assert!(value["linux"].get("timeOffsets").is_none());
    }

    #[test]
    fn a_namespace_without_offsets_asks_for_nothing() {
        let wanted =
            config(json!({"namespaces": [{"type": "time"}]}), json!({})).wanted(&HOST).unwrap();
        assert!(!settings(&wanted).offsets_only);
        let joined = json!({"namespaces": [{"type": "time", "path": "/proc/1/ns/time"}]});
        let wanted = config(joined.clone(), json!({})).wanted(&HOST).unwrap();
        assert!(matches!(wanted.time, Time::Namespace));
        let error = config(joined, json!({"lorentz.rate": "2"})).wanted(&HOST).err().unwrap();
        assert!(
            error.to_string().contains("a time namespace to join, and lorentz.rate"),
            "{error}"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        for (part, word) in
            [("ociVersion", "ociVersion"), ("process", "process"), ("linux", "linux")]
        {
            let mut config = config(json!({}), json!({}));
            config.value[part] = Value::Null;
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(word), "{error}");
        }
    }

    #[test]
    fn fuzz_config() {
        let seed = json!({
            "ociVersion": "1.0.2", "root": {"path": "rootfs"}, "linux": offsets(),
            "process": {"args": ["sh"], "env": ["LORENTZ_RATE=10"], "capabilities": {"bounding": ["CAP_KILL"]}},
            "annotations": {"lorentz.at": "2038-01-19"},
        });
        let words = [
            "\"seccomp\":",
            "\"syscalls\":",
            "\"capabilities\":",
            "\"path\":",
            "\"lorentz.tdf\":\"2\"",
            "\"type\":\"time\"",
        ];
        lorentz_fuzz::fuzz_json("oci-config", &[&seed.to_string()], &words, |bytes| {
            let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return false };
            let config = Config { value, bundle: "/b".into() };
            if config.check().is_err() {
                return false;
            }
            let profile = config.profile().is_ok();
            let adapted = config.wanted(&HOST).and_then(|wanted| config.adapt(&wanted.time));
            profile && adapted.is_ok()
        });
    }
}
