//! The agent of one host: it watches the store, and has a follower for each clock.
//!
//! ```text
//!   connect -> read all clocks, take a lease -> watch --- change ---> follower
//!      ^                                         |  ^
//!      |                                         |  '-- every third of the lease: renew it
//!      '--- lost: wait, connect again -----------'
//! ```
//!
//! Without the store the clocks go on by the lines that they have: those are right until the next change. With `--fence` they stand
//! when the lease is over.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use lorentz_clock::{Span, WallTime};
use lorentz_container::{Container, MonitorKind, NewContainer, StateDir, StateError};
use lorentz_control::{ClockOptions, HostNow};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::time::{interval, sleep, MissedTickBehavior};

use crate::follower::{Fence, Follower, LastContact};
use crate::host_tai::{HostReading, HostTai};
use crate::metrics::Metrics;
use crate::record::ClockRecord;
use crate::store::{HostReport, Store, StoreEvent, StoredClock};

/// Waits between tries to reach the store: the first, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const MAX_RETRY: Duration = Duration::from_secs(5);
/// A report that says nothing new is stored so often.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The lease is renewed so often while it lasts.
const RENEWALS: u32 = 3;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The name of this host in the store.
    pub host_name: String,
    /// This host's clock.
    pub host: HostTai,
    /// The time for which the lease lasts.
    pub lease: Span,
    /// Whether clocks stand when the lease is over.
    pub fence: bool,
}

/// A clock of this host, and its thread.
struct Followed {
    records: mpsc::Sender<ClockRecord>,
    thread: JoinHandle<()>,
    /// The last report that was stored, and when.
    stored: Option<(HostReport, tokio::time::Instant)>,
}

/// The agent.
pub struct Agent {
    options: AgentOptions,
    state: StateDir,
    contact: LastContact,
    clocks: BTreeMap<String, Followed>,
    metrics: Metrics,
    reports: UnboundedReceiver<(String, HostReport)>,
    sender: UnboundedSender<(String, HostReport)>,
}

impl Agent {
    /// An agent without clocks.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be used.
    pub fn new(options: AgentOptions, metrics: Metrics) -> anyhow::Result<Agent> {
        let (sender, reports) = unbounded_channel();
        let contact = LastContact::default();
        contact.note();
        let state = StateDir::open()?;
        let clocks = BTreeMap::new();
        Ok(Agent { options, state, contact, clocks, metrics, reports, sender })
    }

    /// Keeps the clocks until SIGTERM or SIGINT. `connect` connects to the store; `ready` is called when the first connection stands.
    ///
    /// # Errors
    ///
    /// If the signals cannot be received.
    pub async fn serve<S: Store, F: Future<Output = anyhow::Result<S>>>(
        mut self,
        connect: impl Fn() -> F,
        ready: impl FnOnce(),
    ) -> anyhow::Result<()> {
        let (mut end, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut ready = Some(ready);
        tokio::select! {
            () = self.keep(connect, &mut ready) => {}
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
        }
        self.end();
        Ok(())
    }

    /// Keeps the clocks for ever.
    async fn keep<S: Store, F: Future<Output = anyhow::Result<S>>>(
        &mut self,
        connect: impl Fn() -> F,
        ready: &mut Option<impl FnOnce()>,
    ) {
        let mut retry = FIRST_RETRY;
        loop {
            let lost = match connect().await {
                Ok(mut store) => match self.begin(&mut store).await {
                    Ok(()) => {
                        if let Some(ready) = ready.take() {
                            ready();
                        }
                        retry = FIRST_RETRY;
                        self.metrics.set_store(true);
                        self.watch(&mut store).await
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.metrics.set_store(false);
            eprintln!("lorentz-agent: the store: {lost:#}; the clocks go on, and it is tried again in {retry:?}");
            sleep(retry).await;
            retry = (retry * 2).min(MAX_RETRY);
        }
    }

    /// Takes over what the store has, and begins to watch it.
    async fn begin(&mut self, store: &mut impl Store) -> anyhow::Result<()> {
        let (clocks, revision) = store.clocks().await?;
        store.take_lease(self.options.lease).await?;
        store.watch(revision).await?;
        self.contact.note();
        let gone: Vec<String> = self
            .clocks
            .keys()
            .filter(|name| !clocks.iter().any(|one| one.name == **name))
            .cloned()
            .collect();
        gone.iter().for_each(|name| self.drop_clock(name));
        clocks.into_iter().for_each(|clock| self.take(clock));
        for followed in self.clocks.values_mut() {
            // The reports went with the lease before.
            followed.stored = None;
        }
        Ok(())
    }

    /// Follows the store's changes until the store is lost. Returns the reason.
    async fn watch(&mut self, store: &mut impl Store) -> anyhow::Error {
        let period = Duration::from_nanos(self.options.lease.0.max(1) as u64) / RENEWALS;
        let mut renewal = interval(period);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                events = store.next_events() => events.map(|events| self.take_events(events)),
                _ = renewal.tick() => store.renew_lease().await.map(|()| self.contact.note()),
                Some((name, report)) = self.reports.recv() => self.store_report(store, name, report).await,
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    fn take_events(&mut self, events: Vec<StoreEvent>) {
        for event in events {
            match event {
                StoreEvent::Changed(clock) => self.take(clock),
                StoreEvent::Removed(name) => self.drop_clock(&name),
            }
        }
    }

    /// Stores a report that says something new, or is old.
    async fn store_report(
        &mut self,
        store: &mut impl Store,
        name: String,
        report: HostReport,
    ) -> anyhow::Result<()> {
        let Some(followed) = self.clocks.get_mut(&name) else { return Ok(()) };
        self.metrics.set_report(&name, &report);
        let is_news = match &followed.stored {
            None => true,
            Some((old, at)) => {
                (old.change, old.state, old.late_ns)
                    != (report.change, report.state, report.late_ns)
                    || at.elapsed() >= REPORT_INTERVAL
            }
        };
        if is_news {
            store.report(&name, &self.options.host_name, &report).await?;
            followed.stored = Some((report, tokio::time::Instant::now()));
        }
        Ok(())
    }

    /// Gives a record to its clock's follower, which begins with the first one.
    fn take(&mut self, clock: StoredClock) {
        let StoredClock { name, record, .. } = clock;
        let taken = record.map_err(anyhow::Error::msg).and_then(|record| {
            match self.clocks.get(&name) {
                // A follower ends only with its sender.
                Some(followed) => Ok(followed.records.send(record)?),
                None => self.begin_clock(&name, record),
            }
        });
        if let Err(error) = taken {
            eprintln!("lorentz-agent: {name}: {error:#}");
        }
    }

    fn begin_clock(&mut self, name: &str, record: ClockRecord) -> anyhow::Result<()> {
        let now = self.options.host.read()?;
        let container = container_of(&self.state, name, &record, &now)?;
        let fence = self
            .options
            .fence
            .then(|| Fence { contact: self.contact.clone(), after: self.options.lease });
        let follower = Follower::begin(container, self.options.host.clone(), fence, record)?;
        let (records, received) = mpsc::channel();
        let (sender, reported) = (self.sender.clone(), name.to_string());
        let thread = thread::Builder::new().name("follower".to_string()).spawn(move || {
            follower.run(&received, |report| {
                // The agent is gone.
                let _ = sender.send((reported.clone(), report));
            });
        })?;
        let followed = Followed { records, thread, stored: None };
        self.clocks.insert(name.to_string(), followed);
        Ok(())
    }

    fn drop_clock(&mut self, name: &str) {
        if let Some(Followed { records, thread, .. }) = self.clocks.remove(name) {
            self.metrics.remove(name);
            drop(records);
            // A thread that has panicked has said why.
            let _ = thread.join();
        }
    }

    /// Leaves all clocks. Programs on them go on by the lines in force.
    fn end(&mut self) {
        let names: Vec<String> = self.clocks.keys().cloned().collect();
        names.iter().for_each(|name| self.drop_clock(name));
    }
}

/// Returns the container of this host whose clock is the cluster clock `name`: the one that is there, or a new one.
fn container_of(
    state: &StateDir,
    name: &str,
    record: &ClockRecord,
    now: &HostReading,
) -> anyhow::Result<Container> {
    let own = lorentz_control::cluster_container(name);
    match state.container(&own) {
        Ok(container) => match container.enter(MonitorKind::Agent) {
            Err(StateError::Ended(_)) => {}
            entered => return Ok(entered?),
        },
        Err(StateError::Unknown(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let new = NewContainer { name: Some(&own), ..NewContainer::monitored_by(MonitorKind::Agent) };
    let host = HostNow::read().context("the host's clocks")?;
    let settings = starting_options(record, now, &host).settings(&host)?;
    Ok(state.create(&new, &settings)?)
}

/// Options of a clock that stands just before the record's line: it then jumps onto the line.
fn starting_options(record: &ClockRecord, now: &HostReading, host: &HostNow) -> ClockOptions {
    /// Not ahead of the line, though the host's clocks were read at different moments.
    const MARGIN: i64 = 1_000_000;
    let segment = record.in_force(now.tai());
    let virt = (segment.virtual_at(now.tai()).0 - MARGIN).max(0);
    let wall = WallTime::from_nanos(segment.wall().as_nanos() + i128::from(virt));
    ClockOptions {
        at: Some(wall),
        monotonic: Some(Span(virt - host.real.0)),
        boottime: Some(Span(virt - host.boot.0)),
        rate: Some(segment.rate()),
        ..ClockOptions::default()
    }
}
