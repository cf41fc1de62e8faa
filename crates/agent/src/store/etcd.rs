//! The store in etcd.
//!
//! ```text
//! /lorentz/clocks/NAME         a record, JSON
//! /lorentz/hosts/NAME/HOST     a report, JSON, under the host's lease
//! ```

use std::env;
use std::fs;

use anyhow::{bail, Context};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, EventType, GetOptions, Identity,
    KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions, TlsOptions, Txn, TxnOp, WatchOptions,
    WatchStream,
};
use lorentz_clock::{Span, NANOS_PER_SEC};

use super::{in_time, HostReport, Store, StoreEvent, StoredClock, REQUEST_TIMEOUT};
use crate::record::ClockRecord;

const CLOCKS: &str = "/lorentz/clocks/";
const HOSTS: &str = "/lorentz/hosts/";

/// A connection to etcd.
pub struct Etcd {
    client: Client,
    watched: Option<WatchStream>,
    lease: Option<Lease>,
}

struct Lease {
    id: i64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Etcd {
    /// Connects to one of `endpoints`, each a `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// If none answers.
    pub async fn connect(endpoints: &[String]) -> anyhow::Result<Etcd> {
        // No probes of the connection's own: the lease is renewed more often than etcd lets clients probe.
        let options = with_credentials(ConnectOptions::new())?;
        let options = options.with_connect_timeout(REQUEST_TIMEOUT);
        let asked = endpoints.join(",");
        let connected = in_time(Client::connect(endpoints, Some(options))).await;
        let mut client = connected.with_context(|| format!("etcd at {asked}"))?;
        // A client connects when it is used.
        in_time(client.get("/lorentz", None)).await.with_context(|| format!("etcd at {asked}"))?;
        Ok(Etcd { client, watched: None, lease: None })
    }
}

/// Adds the certificates and the user of the variables that etcdctl reads: ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY, each a file,
/// and ETCDCTL_USER, `NAME:PASSWORD`.
fn with_credentials(mut options: ConnectOptions) -> anyhow::Result<ConnectOptions> {
    let file = |variable: &str| -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let path = path.display().to_string();
        Ok(Some(fs::read(&path).with_context(|| format!("{variable}={path}"))?))
    };
    let authority = file("ETCDCTL_CACERT")?;
    let identity = match (file("ETCDCTL_CERT")?, file("ETCDCTL_KEY")?) {
        (Some(certificate), Some(key)) => Some(Identity::from_pem(certificate, key)),
        (None, None) => None,
        _ => bail!("ETCDCTL_CERT and ETCDCTL_KEY belong together; expected both, or none"),
    };
    if authority.is_some() || identity.is_some() {
        let mut tls = TlsOptions::new();
        if let Some(authority) = authority {
            tls = tls.ca_certificate(Certificate::from_pem(authority));
        }
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        options = options.with_tls(tls);
    }
    match env::var("ETCDCTL_USER") {
        Err(_) => Ok(options),
        Ok(user) => {
            let (name, password) =
                user.split_once(':').context("ETCDCTL_USER: expected NAME:PASSWORD")?;
            Ok(options.with_user(name, password))
        }
    }
}

fn clock_key(name: &str) -> String {
    format!("{CLOCKS}{name}")
}

fn stored(pair: &KeyValue) -> Option<StoredClock> {
    let name = pair.key_str().ok()?.strip_prefix(CLOCKS)?.to_string();
    let record = ClockRecord::parse(pair.value());
    Some(StoredClock { name, record, version: pair.mod_revision() })
}

impl Store for Etcd {
    async fn clocks(&mut self) -> anyhow::Result<(Vec<StoredClock>, i64)> {
        let all = Some(GetOptions::new().with_prefix());
        let answer = in_time(self.client.get(CLOCKS, all)).await?;
        let revision = answer.header().context("an answer without a revision")?.revision();
        Ok((answer.kvs().iter().filter_map(stored).collect(), revision))
    }

    async fn clock(&mut self, name: &str) -> anyhow::Result<Option<StoredClock>> {
        let answer = in_time(self.client.get(clock_key(name), None)).await?;
        Ok(answer.kvs().first().and_then(stored))
    }

    async fn put(
        &mut self,
        name: &str,
        record: &ClockRecord,
        version: i64,
    ) -> anyhow::Result<bool> {
        let key = clock_key(name);
        let same = Compare::mod_revision(key.clone(), CompareOp::Equal, version);
        let put = TxnOp::put(key, record.text(), None);
        let answer = in_time(self.client.txn(Txn::new().when([same]).and_then([put]))).await?;
        Ok(answer.succeeded())
    }

    async fn remove(&mut self, name: &str) -> anyhow::Result<bool> {
        Ok(in_time(self.client.delete(clock_key(name), None)).await?.deleted() > 0)
    }

    async fn watch(&mut self, after: i64) -> anyhow::Result<()> {
        let options = WatchOptions::new().with_prefix().with_start_revision(after + 1);
        self.watched = Some(in_time(self.client.watch(CLOCKS, Some(options))).await?);
        Ok(())
    }

    async fn next_events(&mut self) -> anyhow::Result<Vec<StoreEvent>> {
        let watched = self.watched.as_mut().context("nothing is watched")?;
        let answer = watched.message().await?.context("etcd has ended the watch")?;
        if answer.canceled() {
            bail!("etcd has ended the watch: {}", answer.cancel_reason());
        }
        let event = |event: &etcd_client::Event| {
            let pair = event.kv()?;
            match event.event_type() {
                EventType::Put => stored(pair).map(StoreEvent::Changed),
                EventType::Delete => {
                    let name = pair.key_str().ok()?.strip_prefix(CLOCKS)?;
                    Some(StoreEvent::Removed(name.to_string()))
                }
            }
        };
        Ok(answer.events().iter().filter_map(event).collect())
    }

    async fn take_lease(&mut self, time: Span) -> anyhow::Result<()> {
        let secs = (time.0 / NANOS_PER_SEC).max(1);
        let id = in_time(self.client.lease_grant(secs, None)).await?.id();
        let (keeper, answers) = in_time(self.client.lease_keep_alive(id)).await?;
        self.lease = Some(Lease { id, keeper, answers });
        Ok(())
    }

    async fn renew_lease(&mut self) -> anyhow::Result<()> {
        let lease = self.lease.as_mut().context("there is no lease")?;
        in_time(lease.keeper.keep_alive()).await?;
        let answer = in_time(lease.answers.message()).await?;
        match answer.map_or(0, |answer| answer.ttl()) {
            0 => bail!("the lease has expired"),
            _ => Ok(()),
        }
    }

    async fn report(&mut self, name: &str, host: &str, report: &HostReport) -> anyhow::Result<()> {
        let lease = self.lease.as_ref().context("there is no lease")?.id;
        let text = serde_json::to_string(report)?;
        let options = Some(PutOptions::new().with_lease(lease));
        in_time(self.client.put(format!("{HOSTS}{name}/{host}"), text, options)).await?;
        Ok(())
    }

    async fn reports(&mut self, name: &str) -> anyhow::Result<Vec<(String, HostReport)>> {
        let prefix = format!("{HOSTS}{name}/");
        let all = Some(GetOptions::new().with_prefix());
        let answer = in_time(self.client.get(prefix.clone(), all)).await?;
        let report = |pair: &KeyValue| {
            let host = pair.key_str().ok()?.strip_prefix(&prefix)?.to_string();
            Some((host, serde_json::from_slice(pair.value()).ok()?))
        };
        Ok(answer.kvs().iter().filter_map(report).collect())
    }
}
