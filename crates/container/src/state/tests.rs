use super::*;
use crate::test_process::TestProcess;
use lorentz_control::{ClockOptions, HostNow};

/// Waits until the process has ended, and returns its wait status. The caller must make sure that it ends.
fn wait_for(process: TestProcess) -> i32 {
    let mut status = 0;
    // SAFETY: the status may be written.
    unsafe { libc::waitpid(process.0 as libc::pid_t, &mut status, 0) };
    std::mem::forget(process);
    status
}

struct Fixture {
    _dir: tempfile::TempDir,
    state: StateDir,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path()).unwrap();
        Fixture { _dir: dir, state }
    }

    fn create(&self, name: Option<&str>) -> Result<Container, StateError> {
        self.state.create(&new(name), &settings())
    }

    fn names(&self) -> Vec<String> {
        self.state.list().unwrap().iter().map(|c| c.name().to_string()).collect()
    }
}

fn new(name: Option<&str>) -> NewContainer<'_> {
    NewContainer { name, ..NewContainer::monitored_by(MonitorKind::Run) }
}

fn settings() -> ClockSettings {
    ClockOptions::default().settings(&HostNow::read().unwrap()).unwrap()
}

/// Makes the record look as if the calling process had died after it made `container`.
fn bury(container: &Container) -> Container {
    let mut dead = container.clone();
    dead.record.monitors.iter_mut().for_each(|monitor| monitor.start_ticks += 1);
    dead.store().unwrap();
    dead
}

#[test]
fn a_container_appears_whole_and_goes_with_its_last_monitor() {
    let fixture = Fixture::new();
    let container = fixture.create(Some("web")).unwrap();
    assert_eq!(fixture.names(), ["web"]);
    assert!(!container.clock().unwrap().reading().frozen);
    assert_eq!(container.liveness().unwrap(), Liveness::Alive);
    container.leave().unwrap();
    assert!(fixture.names().is_empty());
    container.leave().unwrap();
    assert!(matches!(fixture.state.container("web"), Err(StateError::Unknown(_))));
    assert_eq!(fs::read_dir(&fixture.state.root.path).unwrap().count(), 0);
}

#[test]
fn files_are_private() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let container = fixture.create(None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&container.dir()), 0o700);
    assert_eq!(mode(&container.clock_path()), 0o600);
    assert_eq!(mode(&container.dir().join("container.json")), 0o600);
}

#[test]
fn a_name_in_use_is_refused_and_a_dead_one_used_again() {
    let fixture = Fixture::new();
    let first = fixture.create(Some("web")).unwrap();
    let refusal = fixture.create(Some("web")).unwrap_err();
    assert!(matches!(refusal, StateError::NameInUse(_)));
    assert!(refusal.to_string().starts_with("--name web: in use"), "{refusal}");
    assert!(refusal.is_wrong_input());
    let dead = bury(&first);
    assert_eq!(dead.liveness().unwrap(), Liveness::Ended);
    let second = fixture.create(Some("web")).unwrap();
    assert_eq!(second.liveness().unwrap(), Liveness::Alive);
    // The old handle of the first container does no harm to the second.
    first.leave().unwrap();
    first.remove().unwrap();
    assert_eq!(fixture.names(), ["web"]);
}

#[test]
fn a_directory_without_a_record_is_no_obstacle() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.state.root.path.join("web/deep")).unwrap();
    fs::create_dir_all(fixture.state.root.path.join(UNFINISHED).join("deep")).unwrap();
    assert!(fixture.names().is_empty());
    fixture.create(Some("web")).unwrap();
    assert_eq!(fixture.names(), ["web"]);
}

#[test]
fn wrong_names_reach_no_file() {
    let fixture = Fixture::new();
    for name in ["..", "a/b", ".lock", ""] {
        let refusal = fixture.create(Some(name)).unwrap_err();
        assert!(matches!(refusal, StateError::WrongName { .. }), "{name}");
        assert!(matches!(fixture.state.find(name), Err(StateError::Unknown(_))), "{name}");
    }
}

#[test]
fn another_name_on_the_same_clock_keeps_it_alive() {
    let fixture = Fixture::new();
    let first = fixture.create(Some("first")).unwrap();
    let second = fixture.state.join(&new(Some("second")), "first").unwrap();
    assert_eq!(second.record().clock_of.as_deref(), Some("first"));
    first.clock().unwrap().freeze().unwrap();
    assert!(second.clock().unwrap().reading().frozen);
    assert_eq!(second.sharing_its_clock().unwrap().len(), 2);
    first.leave().unwrap();
    assert_eq!(fixture.names(), ["second"]);
    assert!(second.clock().unwrap().reading().frozen);
    let third = fixture.state.join(&new(Some("third")), "second").unwrap();
    assert_eq!(third.sharing_its_clock().unwrap().len(), 2);
}

#[test]
fn joining_without_a_name_makes_one_more_monitor() {
    let fixture = Fixture::new();
    let first = bury(&fixture.create(Some("web")).unwrap());
    assert!(matches!(fixture.state.join(&new(None), "web"), Err(StateError::Ended(_))));
    assert!(matches!(first.enter(MonitorKind::Exec), Err(StateError::Ended(_))));
    fixture.create(Some("web")).unwrap();
    let joined = fixture.state.join(&new(None), "web").unwrap();
    assert_eq!(joined.name(), "web");
    assert_eq!(fixture.names(), ["web"]);
    // Still one monitor, the same process, now with the kind of the second call.
    assert_eq!(joined.record().monitors.len(), 1);
    let unknown = fixture.state.join(&new(None), "nosuch").unwrap_err().to_string();
    assert!(unknown.starts_with("--clock nosuch: no such container"), "{unknown}");
}

#[test]
fn what_a_monitor_writes_down_stays() {
    let fixture = Fixture::new();
    let mut container = fixture.create(Some("web")).unwrap();
    container.set_program(42).unwrap();
    container.set_mechanism(Mechanism::TimeNamespace).unwrap();
    let group = Cgroup::at("/sys/fs/cgroup/lorentz/nosuch".into());
    container.set_cgroup(Some(&group)).unwrap();
    let read = fixture.state.container("web").unwrap();
    assert_eq!(read.record(), container.record());
    assert_eq!(read.record().monitors[0].program, Some(42));
    assert_eq!(read.cgroup(), Some(group));
    container.leave().unwrap();
    assert!(container.set_program(43).is_err());
}

#[test]
fn containers_are_found_by_name_and_by_process() {
    let fixture = Fixture::new();
    fixture.create(Some("web")).unwrap();
    let me = std::process::id();
    assert_eq!(fixture.state.find("web").unwrap().name(), "web");
    assert_eq!(fixture.state.find(&me.to_string()).unwrap().name(), "web");
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(fixture.state.of_process(child.id()).unwrap().name(), "web");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(fixture.state.of_process(child.id()), Err(StateError::NoProcess(_))));
    assert!(matches!(fixture.state.of_process(1), Err(StateError::NotInside(1))));
    assert!(matches!(fixture.state.find("nosuch"), Err(StateError::Unknown(_))));
    // A name takes precedence over a process id.
    fixture.create(Some("1")).unwrap();
    assert_eq!(fixture.state.find("1").unwrap().name(), "1");
}

fn pids(container: &Container) -> Vec<u32> {
    container.processes().unwrap().iter().map(|process| process.pid).collect()
}

#[test]
fn programs_outlive_their_monitor_until_they_are_cleared() {
    let fixture = Fixture::new();
    let container = fixture.create(Some("web")).unwrap();
    let program = TestProcess::on(&container.clock_path());
    assert_eq!(pids(&container), [program.0]);
    let refusal = crate::clear(&container, false).unwrap_err();
    assert!(refusal.to_string().starts_with("web: still running under its monitor"), "{refusal}");

    let orphaned = bury(&container);
    assert_eq!(orphaned.liveness().unwrap(), Liveness::MonitorDead);
    assert_eq!(fixture.state.of_process(program.0).unwrap().name(), "web");
    assert!(matches!(fixture.create(Some("web")), Err(StateError::NameInUse(_))));
    assert_eq!(
        crate::check_attachable(&fixture.state, program.0).unwrap_err().to_string(),
        format!(
            "PID {}: already in virtual time, on the clock of web; 'lorentz dilate', 'leap' and \
                 'step' change that",
            program.0
        )
    );

    assert_eq!(crate::clear(&orphaned, false).unwrap(), 1);
    assert_eq!(wait_for(program), libc::SIGKILL);
    assert!(fixture.names().is_empty());
}

#[test]
fn one_clock_of_two_containers_has_the_processes_of_each() {
    let fixture = Fixture::new();
    let mut first = fixture.create(Some("first")).unwrap();
    let mut second = fixture.state.join(&new(Some("second")), "first").unwrap();
    let programs = [TestProcess::on(&first.clock_path()), TestProcess::on(&second.clock_path())];
    // Both are children of the test process. Only the monitors' records of first programs tell them apart.
    first.set_program(programs[0].0).unwrap();
    second.set_program(programs[1].0).unwrap();
    assert_eq!(pids(&first), [programs[0].0]);
    assert_eq!(pids(&second), [programs[1].0]);
    let orphans = [bury(&first), bury(&second)];
    assert_eq!(fixture.state.of_process(programs[1].0).unwrap().name(), "second");
    assert_eq!(crate::clear(&orphans[1], false).unwrap(), 1);
    assert_eq!(pids(&first), [programs[0].0]);
}

/// As a process leaves it that was killed between the making of a group and the container's name.
#[test]
fn a_group_of_an_unfinished_container_goes_with_it() {
    let fixture = Fixture::new();
    let mut noted = Vec::new();
    let mut note = |group: &Cgroup| {
        noted.push(group.clone());
        Ok(())
    };
    let Some(group) = Cgroup::create(CgroupPlace::Own, "test-unfinished", &mut note) else {
        return;
    };
    // A note names no group of another container, even of the same name.
    let second = Cgroup::create(CgroupPlace::Own, "test-unfinished", &mut note).unwrap();
    assert_eq!(noted, [group.clone(), second.clone()]);
    second.remove();
    let dir = fixture.state.root.path.join(UNFINISHED);
    fixture.create(Some("first")).unwrap();
    fs::create_dir(&dir).unwrap();
    let mut record = ContainerRecord::new("second", Vec::new(), MonitorKind::Run).unwrap();
    record.cgroup = Some(group.path().to_path_buf());
    record.write(&dir.join(RECORD)).unwrap();
    fixture.state.clear_unfinished().unwrap();
    assert!(!group.path().exists() && !dir.exists());
}

#[test]
fn freezing_stops_time_and_tasks_of_all_on_the_clock() {
    let fixture = Fixture::new();
    let first = fixture.create(Some("first")).unwrap();
    let mut second = fixture.state.join(&new(Some("second")), "first").unwrap();
    let program = TestProcess::on(&second.clock_path());
    second.set_program(program.0).unwrap();
    let group = Cgroup::create(CgroupPlace::Own, "test-freezing", &mut |_| Ok(()));
    if let Some(group) = &group {
        group.add(program.0).unwrap();
        second.set_cgroup(Some(group)).unwrap();
    }
    for _ in 0..2 {
        crate::freeze(&first).unwrap();
        assert!(second.clock().unwrap().reading().frozen);
        assert!(group.as_ref().is_none_or(|group| group.is_frozen().unwrap()));
    }
    for _ in 0..2 {
        crate::unfreeze(&first).unwrap();
        assert!(!second.clock().unwrap().reading().frozen);
        assert!(group.as_ref().is_none_or(|group| !group.is_frozen().unwrap()));
    }
    crate::freeze(&first).unwrap();
    assert_eq!(crate::clear(&bury(&second), false).unwrap(), 1);
    wait_for(program);
    assert!(group.is_none_or(|group| !group.path().exists()));
}

#[test]
fn a_default_directory_goes_with_its_last_container() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lorentz");
    let state = StateDir { root: Root { path: path.clone(), chosen: false, shared: None } };
    assert!(state.list().unwrap().is_empty());
    assert!(!path.exists());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let state = &state;
            scope.spawn(move || {
                for turn in 0..20 {
                    let name = format!("c{thread}-{turn}");
                    let container = state.create(&new(Some(&name)), &settings()).unwrap();
                    container.leave().unwrap();
                    container.leave().unwrap();
                }
            });
        }
    });
    assert!(state.join(&new(None), "web").is_err());
    assert!(!path.exists());
}

#[test]
fn commands_at_once_do_not_mix() {
    let fixture = Fixture::new();
    let state = &fixture.state;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for turn in 0..10 {
                    let name = format!("c{thread}-{turn}");
                    state.create(&new(Some(&name)), &settings()).unwrap();
                }
            });
        }
    });
    assert_eq!(fixture.names().len(), 40);
}
