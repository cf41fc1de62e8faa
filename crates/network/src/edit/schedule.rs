//! The changes to come of a running network's links and clocks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lorentz_clock::Span;
use lorentz_container::StateDir;
use lorentz_emulator::units::Delay;
use serde::Deserialize;

use super::editing::{here, Editing};
use crate::directory::NetworkDir;
use crate::topology::{self, ScheduledChange, Spanned, TopologyFile};
use crate::{Network, NetworkRefusal};

/// Other changes to come for a network that runs: of links and clocks.
#[derive(Clone, Debug, Default)]
pub struct NewSchedule {
    /// Changes that do not come.
    pub removed: Vec<ScheduledChange>,
    /// Changes that come.
    pub added: Vec<ScheduledChange>,
    /// Whether no others come.
    pub replaces: bool,
    /// Whether the instants of those that come count from the present one of the network, not from its start.
    pub from_now: bool,
}

/// Reads a change as a topology file's `schedule` has it: `{at: 60s, link: 'r1:eth0', state: down}`.
///
/// # Errors
///
/// The error in the text, in one line.
pub fn parse_change(text: &str) -> Result<ScheduledChange, String> {
    topology::parse(text, text).map_err(|error: topology::TopologyError| error.what)
}

/// Reads the `schedule` of a file, which may be a topology file.
///
/// # Errors
///
/// If the file cannot be read; or the error in it, with its place.
pub fn read_schedule(path: &Path) -> anyhow::Result<Vec<ScheduledChange>> {
    #[derive(Deserialize)]
    struct File {
        schedule: Vec<ScheduledChange>,
    }
    let text = topology::text_of(path)?;
    Ok(topology::parse::<File>(&path.display().to_string(), &text)?.schedule)
}

/// Returns the changes to come of the network `name`, the earliest first.
///
/// # Errors
///
/// If there is no such network, or its emulator has ended.
pub fn schedule_of(state: &StateDir, name: &str) -> anyhow::Result<Vec<ScheduledChange>> {
    let now = Network::open(state, name)?.status()?.virtual_ns;
    let file = topology::read_file(&NetworkDir::of(state, name)?.topology())?;
    Ok(to_come(&file, Span(now)))
}

/// The changes of clocks in a running network's schedule, for a process that looks again and again.
#[derive(Default)]
pub struct ClockSchedule {
    /// The file that was read: inode and time of its last change. A change of the network replaces it.
    read: Option<(u64, i64, i64)>,
    changes: Vec<ScheduledChange>,
}

impl ClockSchedule {
    /// Returns those of the network `name` that come later than `now` after its start, the earliest first.
    ///
    /// # Errors
    ///
    /// If there is no such network.
    pub fn to_come(
        &mut self,
        state: &StateDir,
        name: &str,
        now: Span,
    ) -> anyhow::Result<impl Iterator<Item = &ScheduledChange>> {
        let path = NetworkDir::of(state, name)?.topology();
        let found = fs::metadata(&path)?;
        let found = Some((found.ino(), found.mtime(), found.mtime_nsec()));
        if self.read != found {
            self.changes = to_come(&topology::read_file(&path)?, Span::ZERO);
            self.changes.retain(|change| change.clock.is_some());
            self.read = found;
        }
        Ok(self.changes.iter().filter(move |change| change.at.span() > now))
    }
}

/// Gives the network `network` further changes to come, or fewer, or others. Movements of nodes stay as they are. Returns what is to
/// come now.
///
/// # Errors
///
/// The first change that cannot be, in one line; then nothing has changed.
pub fn schedule(
    state: &StateDir,
    network: &str,
    new: NewSchedule,
) -> anyhow::Result<Vec<ScheduledChange>> {
    let mut editing = Editing::of(state, network)?;
    let now = Span(editing.network.status()?.virtual_ns);
    let NewSchedule { removed, mut added, replaces, from_now } = new;
    if from_now {
        for change in &mut added {
            change.at = later(change.at, now)?;
        }
    }
    removed.iter().try_for_each(|change| remove(&mut editing.file, change, now))?;
    if replaces {
        let (is_wanted, is_known) = (is_among(&added), is_among(&values(&editing.file)));
        added.retain(|change| !is_known(change));
        editing.file.schedule.retain(|Spanned { value: one, .. }| {
            one.at.span() <= now || one.node.is_some() || is_wanted(one)
        });
    }
    added.iter().try_for_each(|change| check(change, now))?;
    editing.file.schedule.extend(added.into_iter().map(here));
    editing.check()?;
    editing.replace(BTreeMap::new())?;
    Ok(to_come(&editing.file, now))
}

fn remove(
    file: &mut TopologyFile,
    change: &ScheduledChange,
    now: Span,
) -> Result<(), NetworkRefusal> {
    check_kind(change)?;
    let is_it = is_among(std::slice::from_ref(change));
    let found = file.schedule.iter().position(|one| one.value.at.span() > now && is_it(&one.value));
    let unknown = || {
        let expected = "expected a line of 'lorentz schedule show'";
        refused(format!("at {}: no such change is to come; {expected}", change.at))
    };
    file.schedule.remove(found.ok_or_else(unknown)?);
    Ok(())
}

/// The changes of links and clocks of `wanted`, if they are others than those of `present`, after a look at those that are new.
///
/// # Errors
///
/// If a new one cannot be.
pub(super) fn changed(
    present: &TopologyFile,
    wanted: &TopologyFile,
    now: Span,
) -> anyhow::Result<Option<Vec<ScheduledChange>>> {
    let [before, after] = [present, wanted].map(|file| {
        let mut all = values(file);
        all.retain(|change| change.node.is_none());
        all
    });
    let is_same =
        |one: &[ScheduledChange], other: &[ScheduledChange]| other.iter().all(is_among(one));
    if is_same(&before, &after) && is_same(&after, &before) {
        return Ok(None);
    }
    let is_known = is_among(&before);
    after.iter().filter(|change| !is_known(change)).try_for_each(|change| check(change, now))?;
    Ok(Some(after))
}

fn values(file: &TopologyFile) -> Vec<ScheduledChange> {
    file.schedule.iter().map(|change| change.value.clone()).collect()
}

/// Whether a change is among `all`, by what a file says of it.
fn is_among(all: &[ScheduledChange]) -> impl Fn(&ScheduledChange) -> bool {
    let text = |change: &ScheduledChange| serde_json::to_value(change).unwrap_or_default();
    let all: Vec<serde_json::Value> = all.iter().map(text).collect();
    move |change| all.contains(&text(change))
}

fn later(at: Delay, now: Span) -> Result<Delay, NetworkRefusal> {
    let sum = Delay::new(Span(at.span().0.saturating_add(now.0)));
    sum.ok_or_else(|| refused(format!("at {at} from now: expected at most a day after the start")))
}

fn check(change: &ScheduledChange, now: Span) -> Result<(), NetworkRefusal> {
    let at = change.at;
    if at.span() <= now {
        let what = format!("at {at}: is past, {now} after the start; expected a later time");
        return Err(refused(what));
    }
    check_kind(change)
}

fn check_kind(change: &ScheduledChange) -> Result<(), NetworkRefusal> {
    let what = "node: movements stand in the file of 'lorentz up' alone; expected link or clock";
    match &change.node {
        None => Ok(()),
        Some(_) => Err(refused(format!("at {}: {what}", change.at))),
    }
}

fn to_come(file: &TopologyFile, now: Span) -> Vec<ScheduledChange> {
    let mut all = values(file);
    all.retain(|change| change.at.span() > now);
    all.sort_by_key(|change| change.at.span());
    all
}

fn refused(what: String) -> NetworkRefusal {
    NetworkRefusal::Setting(format!("schedule: {what}"))
}
