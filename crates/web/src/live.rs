//! Tells pages what changes: one thread reads the system, and any number of streams carry what it finds.
//!
//! The thread reads five times a second while a page is connected, and every five seconds for the history otherwise. Each look
//! is compared with the state before; whole objects that changed go to all streams, written once. A page that reconnects soon gets
//! what it missed ([`Recent`]), and the whole state otherwise.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use lorentz_container::StateDir;
use tokio::sync::{broadcast, oneshot};

use crate::history::Histories;
use crate::reply::Refusal;
use crate::secrets::Secret;
use crate::system::{Reader, LOOK_INTERVAL};
use crate::types::{Container, Experiment, History, Network, State, StateChange};

/// Time between two looks while no page is connected.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// Changes that a stream may be behind before it gets the whole state.
const MAX_BEHIND: usize = 64;
/// Bytes of changes that are kept for pages that reconnect.
const MAX_RECENT: usize = 4 << 20;

/// A change, as it goes to streams.
pub struct Published {
    /// Its number.
    pub seq: u64,
    /// The change, as JSON.
    pub text: String,
}

enum Command {
    /// A page has connected.
    Begin,
    /// Asks for the state. `fresh` reads all of it now.
    Look { fresh: bool, answer: oneshot::Sender<Arc<State>> },
}

/// The reader and its listeners.
pub struct Live {
    commands: mpsc::Sender<Command>,
    published: broadcast::Sender<Arc<Published>>,
    listeners: Arc<AtomicUsize>,
    recent: Arc<Mutex<Recent>>,
    histories: Arc<Mutex<Histories>>,
    /// Tells this server's numbers of changes from those of one before it.
    run: String,
}

impl Live {
    /// Starts the thread that reads.
    pub fn start(state: StateDir) -> anyhow::Result<Live> {
        let (commands, inbox) = mpsc::channel();
        let (published, _) = broadcast::channel(MAX_BEHIND);
        let live = Live {
            commands,
            published: published.clone(),
            listeners: Arc::default(),
            recent: Arc::default(),
            histories: Arc::default(),
            run: Secret::new().context("naming this run")?.text()[..8].to_string(),
        };
        let thread = ReaderThread {
            reader: Reader::new(state),
            inbox,
            published,
            listeners: live.listeners.clone(),
            recent: live.recent.clone(),
            histories: live.histories.clone(),
            last: Arc::default(),
            looked: None,
        };
        let builder = std::thread::Builder::new().name("reader".into());
        builder.spawn(move || thread.run()).context("starting the reader")?;
        Ok(live)
    }

    /// Returns the state. `fresh` reads all of it now, else it may be [`LOOK_INTERVAL`] old.
    pub async fn look(&self, fresh: bool) -> Result<Arc<State>, Refusal> {
        let (answer, looked) = oneshot::channel();
        let ended = |_| Refusal::failed("the reader has ended");
        self.commands.send(Command::Look { fresh, answer }).map_err(|_| ended(()))?;
        looked.await.map_err(|_| ended(()))
    }

    /// Reads everything soon: after an action.
    pub fn look_soon(&self) {
        let (answer, _) = oneshot::channel();
        // Without a reader there is nothing to hurry.
        let _ = self.commands.send(Command::Look { fresh: true, answer });
    }

    /// Returns the past of a network or an experiment.
    pub fn past(&self, kind: &str, name: &str) -> History {
        lock(&self.histories).of(kind, name)
    }

    /// Begins to tell of changes. From here on none is missed, until [`Live::leave`].
    pub fn join(&self) -> broadcast::Receiver<Arc<Published>> {
        let changes = self.published.subscribe();
        self.listeners.fetch_add(1, Ordering::AcqRel);
        // Without a reader nothing changes.
        let _ = self.commands.send(Command::Begin);
        changes
    }

    /// Ends what [`Live::join`] began.
    pub fn leave(&self) {
        self.listeners.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the changes after the one of this id, and its number; `None` if not all of them are kept.
    pub fn missed(&self, id: &str) -> Option<(u64, Vec<Arc<Published>>)> {
        let seq = self.seq_of(id)?;
        Some((seq, lock(&self.recent).since(seq)?))
    }

    /// Returns the id of change number `seq`.
    pub fn id(&self, seq: u64) -> String {
        format!("{}-{seq}", self.run)
    }

    /// Returns the number of the change in an id of this run.
    fn seq_of(&self, id: &str) -> Option<u64> {
        let (run, seq) = id.split_once('-')?;
        seq.parse().ok().filter(|_| run == self.run)
    }
}

/// The latest changes.
#[derive(Default)]
struct Recent {
    changes: VecDeque<Arc<Published>>,
    bytes: usize,
}

impl Recent {
    fn add(&mut self, change: Arc<Published>) {
        self.bytes += change.text.len();
        self.changes.push_back(change);
        while self.bytes > MAX_RECENT {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.bytes -= oldest.text.len();
        }
    }

    /// Returns all changes after number `seq`; `None` if some of them are not kept any more.
    fn since(&self, seq: u64) -> Option<Vec<Arc<Published>>> {
        let newest = self.changes.back()?.seq;
        let oldest = self.changes.front()?.seq;
        let is_kept = seq + 1 >= oldest && seq <= newest;
        is_kept.then(|| self.changes.iter().filter(|one| one.seq > seq).cloned().collect())
    }
}

struct ReaderThread {
    reader: Reader,
    inbox: mpsc::Receiver<Command>,
    published: broadcast::Sender<Arc<Published>>,
    listeners: Arc<AtomicUsize>,
    recent: Arc<Mutex<Recent>>,
    histories: Arc<Mutex<Histories>>,
    last: Arc<State>,
    looked: Option<Instant>,
}

impl ReaderThread {
    fn run(mut self) {
        loop {
            let interval = match self.listeners.load(Ordering::Acquire) {
                0 => IDLE_INTERVAL,
                _ => LOOK_INTERVAL,
            };
            let due = self.looked.map(|then| then + interval);
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            match self.inbox.recv_timeout(left.unwrap_or_default()) {
                Ok(Command::Begin) => {}
                Ok(Command::Look { fresh, answer }) => {
                    let is_old = self.looked.is_none_or(|then| then.elapsed() >= LOOK_INTERVAL);
                    if fresh || is_old {
                        self.look(fresh);
                    }
                    // The one who asked may have left.
                    let _ = answer.send(self.last.clone());
                }
                Err(RecvTimeoutError::Timeout) => self.look(false),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn look(&mut self, fresh: bool) {
        let mut state = self.reader.look(fresh || self.looked.is_none());
        self.looked = Some(Instant::now());
        let change = difference(&self.last, &state);
        state.seq = self.last.seq;
        if let Some(mut change) = change {
            state.seq += 1;
            change.seq = state.seq;
            let text = serde_json::to_string(&change).unwrap_or_default();
            let change = Arc::new(Published { seq: state.seq, text });
            lock(&self.recent).add(change.clone());
            // Nobody listens where only the state was asked for.
            let _ = self.published.send(change);
        }
        lock(&self.histories).add(&state);
        self.last = Arc::new(state);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the objects of `new` that are not as in `old`, and those that are gone. `None` if nothing changed.
fn difference(old: &State, new: &State) -> Option<StateChange> {
    let change = StateChange {
        seq: 0,
        now: new.now,
        networks: changed(&old.networks, &new.networks, |one| &one.name, same_network),
        experiments: changed(&old.experiments, &new.experiments, |one| &one.name, Experiment::eq),
        containers: changed(&old.containers, &new.containers, |one| &one.name, Container::eq),
    };
    let is_empty =
        change.networks.is_empty() && change.experiments.is_empty() && change.containers.is_empty();
    (!is_empty).then_some(change)
}

fn changed<T: Clone>(
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> &String,
    same: impl Fn(&T, &T) -> bool,
) -> BTreeMap<String, Option<T>> {
    let before: BTreeMap<&String, &T> = old.iter().map(|one| (name(one), one)).collect();
    let is_new = |one: &&T| !before.get(name(one)).is_some_and(|before| same(before, one));
    let mut all: BTreeMap<String, Option<T>> =
        new.iter().filter(is_new).map(|one| (name(one).clone(), Some(one.clone()))).collect();
    let names: std::collections::BTreeSet<&String> = new.iter().map(&name).collect();
    let gone = old.iter().map(&name).filter(|name| !names.contains(name));
    all.extend(gone.map(|name| (name.clone(), None)));
    all
}

/// Whether nothing changed but time, which the page draws by itself.
fn same_network(old: &Network, new: &Network) -> bool {
    fn told(network: &Network) -> impl PartialEq + '_ {
        let Network { name, clock, rounds, started_ns, virtual_ns: _, nodes, .. } = network;
        let Network {
            switches, links, lateness, emulator, verdict, changes_to_come, schedule, ..
        } = network;
        let begin = (name, clock, rounds, started_ns, nodes, changes_to_come, schedule);
        (begin, switches, links, lateness, emulator, verdict)
    }
    told(old) == told(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Life, Nanos};

    fn container(name: &str, tasks: u32) -> Container {
        Container {
            name: name.to_string(),
            pid: None,
            command: Vec::new(),
            state: Life::Runs,
            clock: None,
            network: None,
            node: None,
            experiment: None,
            tasks,
            cpu_ns: 0,
            leaps: None,
        }
    }

    fn state(containers: &[(&str, u32)]) -> State {
        let containers = containers.iter().map(|(name, tasks)| container(name, *tasks)).collect();
        State { containers, ..State::default() }
    }

    #[test]
    fn a_change_has_what_changed_and_what_is_gone() {
        let old = state(&[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(difference(&old, &old), None);
        let change = difference(&old, &state(&[("a", 1), ("b", 2), ("d", 1)])).unwrap();
        let names: Vec<(&str, bool)> =
            change.containers.iter().map(|(name, one)| (name.as_str(), one.is_some())).collect();
        assert_eq!(names, [("b", true), ("c", false), ("d", true)]);
    }

    #[test]
    fn time_alone_is_no_change() {
        let then = State {
            now: crate::types::Now { real_ns: Nanos(5), ..Default::default() },
            ..State::default()
        };
        assert_eq!(difference(&State::default(), &then), None);
    }

    #[test]
    fn what_was_missed_is_whole_or_not_told() {
        let mut recent = Recent::default();
        assert!(recent.since(0).is_none());
        for seq in 1..=5 {
            recent.add(Arc::new(Published { seq, text: "x".repeat(MAX_RECENT / 3) }));
        }
        let numbers =
            |seq| recent.since(seq).map(|all| all.iter().map(|one| one.seq).collect::<Vec<_>>());
        assert_eq!(numbers(5), Some(vec![]));
        assert_eq!(numbers(2), Some(vec![3, 4, 5]));
        assert_eq!(numbers(1), None);
        assert_eq!(numbers(6), None, "a number of another run");
    }
}
