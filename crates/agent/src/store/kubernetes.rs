//! The store in the Kubernetes API: custom resources, whose definitions are `packaging/kubernetes/chart/crds`.
//!
//! ```text
//! virtualclocks/NAME        spec: rate, frozen, at: what is wanted. line: the record
//! virtualclockhosts/HOST    the host's lease, and its report on each clock
//! ```
//!
//! Verbs write what is wanted together with the line that has it. A person may also change the former alone, by `kubectl patch`. Then
//! each agent computes the line and tries to store it. Versions are compared, so one of them succeeds.

use std::collections::BTreeMap;
use std::pin::Pin;

use anyhow::{bail, Context};
use futures_util::{Stream, StreamExt};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent};
use kube::Client;
use lorentz_clock::{Rate, Span, WallTime, NANOS_PER_SEC};
use lorentz_control::{Date, HostNow};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use super::{in_time, HostReport, Store, StoreEvent, StoredClock};
use crate::host_tai::HostTai;
use crate::record::{ClockRecord, TaiInstant, Wanted};

const GROUP: &str = "lorentz.dev";
const VERSION: &str = "v1alpha1";
/// The time from a wish of `kubectl patch` to the change, in which all hosts hear of it.
const WISH_LEAD: Span = Span(NANOS_PER_SEC);
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

type Watched = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Send>>;

/// A connection to the Kubernetes API.
pub struct Kubernetes {
    clocks: Api<DynamicObject>,
    hosts: Api<DynamicObject>,
    host_clock: HostTai,
    /// The name of this host's object; empty for a command, which has no lease.
    host_name: String,
    /// The watch, and the version from which it goes on after the server has ended it.
    watched: Option<(Watched, String)>,
    lease: Option<Span>,
}

/// The rate and state that a clock is to have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Wish {
    /// As on the command line: `2`, `1/10`. Without it: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    frozen: bool,
    /// The wall clock's start, of a new clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

impl Wish {
    fn rate(&self) -> anyhow::Result<Rate> {
        let rate = self.rate.as_deref().map_or(Ok(Rate::ONE), str::parse);
        rate.map_err(|error| anyhow::anyhow!("rate: {error}"))
    }
}

/// The data of a `VirtualClock`.
#[derive(Serialize, Deserialize)]
struct ClockObject {
    #[serde(default)]
    spec: Wish,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<Value>,
}

/// The data of a `VirtualClockHost`.
#[derive(Deserialize)]
struct HostObject {
    lease_ns: i64,
    renewed_at_tai_ns: TaiInstant,
    #[serde(default)]
    clocks: BTreeMap<String, HostReport>,
}

impl Kubernetes {
    /// Connects to the cluster that kubectl would use: by KUBECONFIG, ~/.kube/config, or the service account of a pod. `host_clock`
    /// is this host's clock, `host_name` the name of its object.
    ///
    /// # Errors
    ///
    /// If the API does not answer, or does not have the custom resources.
    pub async fn connect(host_clock: HostTai, host_name: &str) -> anyhow::Result<Kubernetes> {
        let client = in_time(Client::try_default()).await.context("the Kubernetes API")?;
        let resource = |kind, plural| {
            let kind = GroupVersionKind::gvk(GROUP, VERSION, kind);
            Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
        };
        let clocks: Api<DynamicObject> = resource("VirtualClock", "virtualclocks");
        let hosts = resource("VirtualClockHost", "virtualclockhosts");
        match in_time(clocks.list(&ListParams::default().limit(1))).await {
            Err(error) if is_status(&error, NOT_FOUND) => {
                bail!("the cluster has no virtual clocks: 'lorentz cluster manifest | kubectl apply -f -' defines them")
            }
            listed => listed.context("the Kubernetes API")?,
        };
        let host_name = host_name.to_string();
        Ok(Kubernetes { clocks, hosts, host_clock, host_name, watched: None, lease: None })
    }

    fn now(&self) -> anyhow::Result<TaiInstant> {
        Ok(self.host_clock.read()?.tai())
    }

    async fn begin_watch(&self, after: &str) -> anyhow::Result<Watched> {
        let params = WatchParams::default().disable_bookmarks();
        Ok(Box::pin(in_time(self.clocks.watch(&params, after)).await?))
    }

    /// Returns the clock of `object`. If the line has not what is wanted, this computes a line that has it, and tries to store it.
    async fn settled(&self, object: &DynamicObject) -> StoredClock {
        match self.wished_line(object) {
            Err(error) => failed(object, format!("{error:#}")),
            Ok(None) => stored(object),
            Ok(Some(record)) => {
                let clock = stored(object);
                // Where another agent was earlier, the watch tells what it has stored.
                match self.replace(&clock.name, &record, clock.version).await {
                    Ok(Some(object)) => stored(&object),
                    Ok(None) => clock,
                    Err(error) => failed(object, format!("{error:#}")),
                }
            }
        }
    }

    /// Returns the line that has what is wanted, if the line of `object` has not.
    fn wished_line(&self, object: &DynamicObject) -> anyhow::Result<Option<ClockRecord>> {
        let ClockObject { spec: wish, line } = parse(object)?;
        let now = self.now()?;
        let Some(line) = line else {
            let host = HostNow::read().context("the host's clocks")?;
            let at = wish.at.as_deref().map(str::parse::<Date>).transpose();
            let at = at.map_err(|error| anyhow::anyhow!("at: {error}"))?;
            let wall = at.map_or(Ok(host.wall), |date| date.from(host.wall));
            let wall: WallTime = wall.map_err(|error| anyhow::anyhow!("at: {error}"))?;
            return Ok(Some(ClockRecord::new(now, wall, wish.rate()?)?));
        };
        let mut record = parse_record(&line)?;
        let mut is_new = false;
        let freeze = if wish.frozen { Wanted::Freeze } else { Wanted::Unfreeze };
        for wanted in [Wanted::Dilate(wish.rate()?), freeze] {
            let is_there = match wanted {
                Wanted::Dilate(rate) => record.rate() == rate,
                _ => record.is_frozen() == wish.frozen,
            };
            if !is_there {
                if let Some((changed, _)) = record.changed(wanted, now, WISH_LEAD)? {
                    (record, is_new) = (changed, true);
                }
            }
        }
        Ok(is_new.then_some(record))
    }

    /// Stores `record` in the place of a clock's version, 0 for none. Returns the object; `None` if it has changed meanwhile.
    async fn replace(
        &self,
        name: &str,
        record: &ClockRecord,
        version: i64,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let (object, params) = (object_of(name, record, version)?, PostParams::default());
        unless_changed(match version {
            0 => in_time(self.clocks.create(&params, &object)).await,
            _ => in_time(self.clocks.replace(name, &params, &object)).await,
        })
    }

    /// Renews the lease, and changes the fields `more` of this host's object.
    async fn patch_host(&self, more: &Value) -> anyhow::Result<()> {
        let lease = self.lease.context("there is no lease")?;
        let mut data = json!({"lease_ns": lease.0, "renewed_at_tai_ns": self.now()?});
        merge(&mut data, more);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&data));
        match in_time(self.hosts.patch(&self.host_name, &params, &patch)).await {
            Err(error) if is_status(&error, NOT_FOUND) => {
                let kind = json!({
                    "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "VirtualClockHost",
                    "metadata": {"name": self.host_name},
                });
                merge(&mut data, &kind);
                let object: DynamicObject = serde_json::from_value(data)?;
                in_time(self.hosts.create(&PostParams::default(), &object)).await?;
                Ok(())
            }
            patched => patched.map(drop),
        }
    }
}

/// Adds the fields of the object `more` to the object `to`.
fn merge(to: &mut Value, more: &Value) {
    if let (Some(to), Some(more)) = (to.as_object_mut(), more.as_object()) {
        to.extend(more.clone());
    }
}

/// Whether `error` is an answer of the API with this HTTP status.
fn is_status(error: &anyhow::Error, status: u16) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(answer)) if answer.code == status)
}

/// Returns an answer; `None` if the object was changed or removed meanwhile.
fn unless_changed<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Err(error) if is_status(&error, CONFLICT) || is_status(&error, NOT_FOUND) => Ok(None),
        answer => answer.map(Some),
    }
}

fn name_of(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// The version of an object. It is a number where etcd is behind the API, and from Kubernetes 1.35 on everywhere.
fn version_of(object: &DynamicObject) -> Option<i64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

fn parse(object: &DynamicObject) -> anyhow::Result<ClockObject> {
    Ok(serde_json::from_value(object.data.clone())?)
}

fn parse_record(line: &Value) -> anyhow::Result<ClockRecord> {
    ClockRecord::parse(line.to_string().as_bytes()).map_err(anyhow::Error::msg)
}

fn stored(object: &DynamicObject) -> StoredClock {
    let line = parse(object).and_then(|clock| clock.line.context("it has no line yet"));
    let record = line.and_then(|line| parse_record(&line));
    StoredClock {
        name: name_of(object),
        record: record.map_err(|error| format!("{error:#}")),
        version: version_of(object).unwrap_or_default(),
    }
}

fn failed(object: &DynamicObject, error: String) -> StoredClock {
    StoredClock { record: Err(error), ..stored(object) }
}

/// Makes the object of a clock; `version` is the one that it replaces, 0 for none.
fn object_of(name: &str, record: &ClockRecord, version: i64) -> anyhow::Result<DynamicObject> {
    let wish = Wish { rate: Some(record.rate().to_string()), frozen: record.is_frozen(), at: None };
    let clock = ClockObject { spec: wish, line: Some(serde_json::from_str(&record.text())?) };
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "VirtualClock",
        "metadata": {"name": name},
    });
    if version != 0 {
        object["metadata"]["resourceVersion"] = version.to_string().into();
    }
    merge(&mut object, &serde_json::to_value(clock)?);
    Ok(serde_json::from_value(object)?)
}

impl Store for Kubernetes {
    async fn clocks(&mut self) -> anyhow::Result<(Vec<StoredClock>, i64)> {
        let list = in_time(self.clocks.list(&ListParams::default())).await?;
        let version = list.metadata.resource_version.as_deref().unwrap_or_default();
        let version = version.parse().with_context(|| format!("resource version {version:?}"))?;
        let mut clocks = Vec::new();
        for object in &list.items {
            clocks.push(self.settled(object).await);
        }
        Ok((clocks, version))
    }

    async fn clock(&mut self, name: &str) -> anyhow::Result<Option<StoredClock>> {
        let object = in_time(self.clocks.get_opt(name)).await?;
        match object {
            Some(object) => Ok(Some(self.settled(&object).await)),
            None => Ok(None),
        }
    }

    async fn put(
        &mut self,
        name: &str,
        record: &ClockRecord,
        version: i64,
    ) -> anyhow::Result<bool> {
        Ok(self.replace(name, record, version).await?.is_some())
    }

    async fn remove(&mut self, name: &str) -> anyhow::Result<bool> {
        Ok(unless_changed(in_time(self.clocks.delete(name, &Default::default())).await)?.is_some())
    }

    async fn watch(&mut self, after: i64) -> anyhow::Result<()> {
        let after = after.to_string();
        self.watched = Some((self.begin_watch(&after).await?, after));
        Ok(())
    }

    async fn next_events(&mut self) -> anyhow::Result<Vec<StoreEvent>> {
        loop {
            let (stream, after) = self.watched.as_mut().context("nothing is watched")?;
            let Some(event) = stream.next().await else {
                // The server ends each watch after some minutes.
                let after = after.clone();
                self.watched = Some((self.begin_watch(&after).await?, after));
                continue;
            };
            let event = event?;
            if let WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) = &event
            {
                if let Some(version) = &object.metadata.resource_version {
                    after.clone_from(version);
                }
            }
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    return Ok(vec![StoreEvent::Changed(self.settled(&object).await)])
                }
                WatchEvent::Deleted(object) => {
                    return Ok(vec![StoreEvent::Removed(name_of(&object))])
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => bail!("the API has ended the watch: {status}"),
            }
        }
    }

    async fn take_lease(&mut self, time: Span) -> anyhow::Result<()> {
        self.lease = Some(time);
        // The reports of the lease before are gone.
        let _ =
            unless_changed(in_time(self.hosts.delete(&self.host_name, &Default::default())).await)?;
        self.renew_lease().await
    }

    async fn renew_lease(&mut self) -> anyhow::Result<()> {
        self.patch_host(&json!({})).await
    }

    async fn report(&mut self, name: &str, _: &str, report: &HostReport) -> anyhow::Result<()> {
        self.patch_host(&json!({"clocks": {name: report}})).await
    }

    async fn reports(&mut self, name: &str) -> anyhow::Result<Vec<(String, HostReport)>> {
        let now = self.now()?;
        let list = in_time(self.hosts.list(&ListParams::default())).await?;
        let report = |object: DynamicObject| {
            let host: HostObject = serde_json::from_value(object.data.clone()).ok()?;
            let is_held = host.renewed_at_tai_ns.plus(Span(host.lease_ns)) >= now;
            Some((name_of(&object), host.clocks.get(name)?.clone())).filter(|_| is_held)
        };
        Ok(list.items.into_iter().filter_map(report).collect())
    }
}
