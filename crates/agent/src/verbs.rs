//! The verbs that read and change the records of clocks. They talk to the store alone: an agent does what a record says.

use anyhow::Context;
use lorentz_clock::{Span, WallTime};
use lorentz_control::{Date, HostNow};
use serde_json::{json, Value};

use crate::args::{
    ChangeArgs, CreateArgs, DilateArgs, ListArgs, ManifestArgs, MoveArgs, RmArgs, StatusArgs,
};
use crate::host_tai::{HostTai, InjectedError};
use crate::record::{ChangeRefused, ClockRecord, TaiInstant, Wanted};
use crate::store::{HostReport, Store, StoredClock};
use crate::wrong_input::WrongInput;

/// Most tries to change a record that others change at the same time.
const MAX_TRIES: u32 = 20;

/// `create`.
pub async fn create(store: &mut impl Store, args: &CreateArgs) -> anyhow::Result<()> {
    let host = HostNow::read().context("the host's clocks")?;
    let at = args.at.as_ref().map_or(Ok(host.wall), |date: &Date| date.from(host.wall));
    let wall = at.map_err(|error| WrongInput(format!("--at: {error}")))?;
    let record = ClockRecord::new(now()?, wall, args.rate).map_err(wrong)?;
    match store.put(&args.name, &record, 0).await? {
        true => Ok(()),
        false => Err(WrongInput(format!(
            "{}: there is such a clock; 'lorentz cluster rm {}' removes it",
            args.name, args.name
        ))
        .into()),
    }
}

/// `dilate`.
pub async fn dilate(store: &mut impl Store, args: &DilateArgs) -> anyhow::Result<()> {
    let rate = args.rate.or(args.tdf).context("--rate R or --tdf N")?;
    change(store, &args.change, Wanted::Dilate(rate)).await
}

/// `leap`.
pub async fn leap(store: &mut impl Store, args: &MoveArgs) -> anyhow::Result<()> {
    if args.by < Span::ZERO {
        return Err(WrongInput(format!(
            "--by {}: time does not go back; expected 0 or more, or 'lorentz cluster step'",
            args.by
        ))
        .into());
    }
    change(store, &args.change, Wanted::Leap(args.by)).await
}

/// `step`.
pub async fn step(store: &mut impl Store, args: &MoveArgs) -> anyhow::Result<()> {
    change(store, &args.change, Wanted::Step(args.by)).await
}

/// `freeze`, `unfreeze`, and the rest of the changes.
pub async fn change(
    store: &mut impl Store,
    args: &ChangeArgs,
    wanted: Wanted,
) -> anyhow::Result<()> {
    for _ in 0..MAX_TRIES {
        let stored = clock(store, &args.name).await?;
        let record = readable(&stored)?;
        let now = now()?;
        let Some((changed, at)) = record.changed(wanted, now, args.lead).map_err(wrong)? else {
            return report_change(args, record, now);
        };
        if store.put(&args.name, &changed, stored.version).await? {
            return report_change(args, &changed, at);
        }
    }
    anyhow::bail!("{}: others changed it {MAX_TRIES} times while this command did", args.name)
}

fn report_change(args: &ChangeArgs, record: &ClockRecord, at: TaiInstant) -> anyhow::Result<()> {
    if args.json {
        println!("{}", json!({"name": args.name, "change": record.change(), "at_tai_ns": at.0}));
    }
    Ok(())
}

/// `ls`.
pub async fn ls(store: &mut impl Store, args: &ListArgs) -> anyhow::Result<()> {
    let (mut clocks, _) = store.clocks().await?;
    if let Some(name) = &args.name {
        clocks.retain(|clock| clock.name == *name);
        if clocks.is_empty() {
            return Err(unknown(name));
        }
    }
    let now = now()?;
    if args.json {
        let all: Vec<Value> = clocks.iter().map(|clock| clock_json(clock, now)).collect();
        println!("{}", Value::from(all));
        return Ok(());
    }
    for clock in &clocks {
        println!("{}", clock_line(clock, now));
    }
    Ok(())
}

/// `status`.
pub async fn status(store: &mut impl Store, args: &StatusArgs) -> anyhow::Result<()> {
    let stored = clock(store, &args.name).await?;
    let reports = store.reports(&args.name).await?;
    let now = now()?;
    if args.json {
        let hosts: Vec<Value> =
            reports.iter().map(|(host, report)| host_json(host, report)).collect();
        let mut shown = clock_json(&stored, now);
        shown["hosts"] = hosts.into();
        println!("{shown}");
        return Ok(());
    }
    println!("{}", clock_line(&stored, now));
    let change = stored.record.as_ref().map_or(0, ClockRecord::change);
    for (host, report) in &reports {
        println!("  {}", host_line(host, report, change));
    }
    if reports.is_empty() {
        println!("  no host: 'lorentz cluster serve' on each host keeps its clock");
    }
    Ok(())
}

/// `rm`.
pub async fn rm(store: &mut impl Store, args: &RmArgs) -> anyhow::Result<()> {
    match store.remove(&args.name).await? {
        true => Ok(()),
        false => Err(unknown(&args.name)),
    }
}

/// `manifest`.
pub fn manifest(args: &ManifestArgs) -> anyhow::Result<()> {
    const CRDS: &str = include_str!("../../../packaging/kubernetes/chart/crds/crds.yaml");
    const AGENTS: &str = include_str!("../../../packaging/kubernetes/chart/templates/agents.yaml");
    let is_image = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if args.image.is_empty() || !args.image.chars().all(is_image) {
        return Err(WrongInput(format!(
            "--image {}: expected the name of an image, as 'registry.example/lorentz:1.0'",
            args.image
        ))
        .into());
    }
    print!("{CRDS}");
    if !args.crds {
        print!("---\n{}", AGENTS.replace("{{ .Values.image }}", &args.image));
    }
    Ok(())
}

async fn clock(store: &mut impl Store, name: &str) -> anyhow::Result<StoredClock> {
    store.clock(name).await?.ok_or_else(|| unknown(name))
}

fn readable(stored: &StoredClock) -> anyhow::Result<&ClockRecord> {
    stored.record.as_ref().map_err(|error| anyhow::anyhow!("{}: {error}", stored.name))
}

fn unknown(name: &str) -> anyhow::Error {
    WrongInput(format!("{name}: no such clock; expected one that 'lorentz cluster ls' shows"))
        .into()
}

fn wrong(refused: ChangeRefused) -> anyhow::Error {
    WrongInput(refused.to_string()).into()
}

/// TAI by this host's clock.
fn now() -> anyhow::Result<TaiInstant> {
    Ok(HostTai::new(InjectedError::default(), None).read()?.tai())
}

/// One line: name, date, rate, and the changes to come.
fn clock_line(stored: &StoredClock, now: TaiInstant) -> String {
    let record = match &stored.record {
        Ok(record) => record,
        Err(error) => return format!("{}  {error}", stored.name),
    };
    let segment = record.in_force(now);
    let virt = segment.virtual_at(now);
    let wall = to_millis(segment.wall().plus(Span(virt.0)));
    let state = if virt == segment.limit() { "frozen" } else { "running" };
    let to_come = record.segments().iter().filter(|one| one.at_tai_ns > now).count();
    let to_come = match to_come {
        0 => String::new(),
        1 => ", 1 change to come".to_string(),
        many => format!(", {many} changes to come"),
    };
    format!(
        "{}  {wall}  rate {}, {state}, change {}{to_come}",
        stored.name,
        segment.rate(),
        record.change()
    )
}

/// Drops what people do not read.
fn to_millis(wall: WallTime) -> WallTime {
    const MILLI: i128 = 1_000_000;
    WallTime::from_nanos(wall.as_nanos().div_euclid(MILLI) * MILLI)
}

fn host_line(host: &str, report: &HostReport, change: u64) -> String {
    let taken = match report.change == change {
        true => String::new(),
        false => format!(", has change {} of {change}", report.change),
    };
    let late = match report.late_ns {
        0 => String::new(),
        late => format!(", took it over {} late", Span(late)),
    };
    format!(
        "{host}  {}{taken}{late}, error at most {} of virtual time",
        report.state.name(),
        Span(report.error_bound_ns)
    )
}

fn clock_json(stored: &StoredClock, now: TaiInstant) -> Value {
    let record = match &stored.record {
        Ok(record) => record,
        Err(error) => return json!({"name": stored.name, "error": error}),
    };
    let segment = record.in_force(now);
    let virt = segment.virtual_at(now);
    let wall = segment.wall().plus(Span(virt.0));
    let to_come: Vec<i64> =
        record.segments().iter().map(|one| one.at_tai_ns.0).filter(|at| *at > now.0).collect();
    json!({
        "name": stored.name,
        "change": record.change(),
        "wall": wall.to_string(),
        "virtual_ns": virt.0,
        "rate": segment.rate().to_string(),
        "frozen": virt == segment.limit(),
        "tai_ns": now.0,
        "to_come_tai_ns": to_come,
    })
}

fn host_json(host: &str, report: &HostReport) -> Value {
    json!({
        "host": host,
        "state": report.state.name(),
        "change": report.change,
        "late_ns": report.late_ns,
        "ahead_ns": report.ahead_ns,
        "error_bound_ns": report.error_bound_ns,
        "seen_at_tai_ns": report.seen_at_tai_ns.0,
    })
}
