use std::path::Path;

use super::*;
use crate::check::{plan_from, plan_from_text};
use crate::import::{read_text, Format};

const LAB: &str = "\
name: lab
tdf: 10
topology:
  nodes:
    r1: {sysctls: {net.ipv4.ip_forward: 1, net.ipv6.conf.all.forwarding: 1}, position: [10, 20]}
    pc: {exec: [\"echo 'a <b> & c' > /dev/null\"], env: {A: b}}
    web: {command: [sleep, '1000']}
    s1: {kind: switch, stp: true}
    h1: {kind: hub}
  links:
    - {endpoints: ['pc:eth0', 's1:p1'], ipv4: [10.0.0.2/24, null], mac: ['02:00:00:00:00:07', null]}
    - {endpoints: ['r1:eth0', 's1:p2'], ipv4: [10.0.0.1/24, null], rate: 10mbit, delay: 5ms, loss: 0.5%, queue: {packets: 50}}
    - {endpoints: ['r1:eth1', 'h1:p1'], ipv4: [10.1.0.1/24, null], ipv6: ['fd00::1/64', null]}
    - endpoints: ['web:eth0', 'h1:p2']
      ipv4: [10.1.0.2/24, null]
      from: {'web:eth0': {rate: 1mbit, delay: 1ms}, 'h1:p2': {rate: 2mbit, delay: 2ms}}
schedule:
  - {at: 5s, link: 'pc:eth0', state: down}
";

fn exported(format: ExportFormat) -> Exported {
    export(&plan_from_text("lab.yaml", LAB).unwrap(), format)
}

fn again(text: &str, name: &str, format: Format) -> NetworkPlan {
    let imported = read_text(Path::new(name), format, text).unwrap();
    plan_from(name, &imported.topology).unwrap()
}

fn check_links(plan: &NetworkPlan) {
    let original = plan_from_text("lab.yaml", LAB).unwrap();
    assert_eq!(plan.links.len(), original.links.len());
    for link in &original.links {
        let found = plan.links.iter().find(|one| one.ends == link.ends).unwrap();
        assert_eq!((found.addresses.clone(), found.mtu), (link.addresses.clone(), link.mtu));
        assert_eq!(found.impairments, link.impairments, "{}", link.ends[0]);
    }
}

#[test]
fn a_scenario_of_core_reads_back() {
    let core = exported(ExportFormat::Core);
    let plan = again(&core.text, "lab.xml", Format::Core);
    check_links(&plan);
    assert_eq!(plan.positions["r1"], [10.0, 20.0]);
    let node = |name: &str| plan.nodes.iter().find(|node| node.name == name).unwrap();
    assert!(elements::is_router(node("r1")) && !elements::is_router(node("pc")));
    assert!(node("pc").exec[0].text.contains("\n(\necho 'a <b> & c' > /dev/null\n)\n"));
    assert!(node("web").exec[0].text.contains("\n(\n'sleep' '1000' &\n)\n"));
    for what in ["tdf 10", "schedule: a change of pc:eth0 at 5s", "node pc: env"] {
        assert!(core.left_out.iter().any(|one| one.starts_with(what)), "{:?}", core.left_out);
    }
}

#[test]
fn a_wlan_of_core_reads_back() {
    const WLAN: &str = "\
name: air
topology:
  nodes:
    a: {position: [0, 0]}
    b: {position: [100, 0]}
    w: {kind: wlan, radio: {range: 120.5, rate: 54mbit, delay: 5ms, loss: 2%}}
  links:
    - {endpoints: ['a:eth0', 'w:a'], ipv4: [10.0.0.1/24, null]}
    - {endpoints: ['w:b', 'b:eth0'], ipv4: [null, 10.0.0.2/24]}
schedule: [{at: 1s, node: a, position: [5, 5]}]
";
    let plan = plan_from_text("air.yaml", WLAN).unwrap();
    let core = export(&plan, ExportFormat::Core);
    let read = again(&core.text, "air.xml", Format::Core);
    assert_eq!((&read.switches, &read.links), (&plan.switches, &plan.links));
    assert_eq!(read.positions, plan.positions);
    assert_eq!(core.left_out, ["schedule: a movement of a at 1s"]);
    let mininet = export(&plan, ExportFormat::Mininet);
    assert!(mininet.left_out.contains(&"node w: a wlan; it is a switch".to_string()));
}

#[test]
fn a_topology_of_containerlab_reads_back_without_its_impairments() {
    let lab = exported(ExportFormat::Containerlab);
    let plan = again(&lab.text, "lab.clab.yml", Format::Containerlab);
    assert_eq!(plan.links.len(), 4);
    let node = |name: &str| plan.nodes.iter().find(|node| node.name == name).unwrap();
    let exec: Vec<&str> = node("pc").exec.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(exec[0], "ip address add 10.0.0.2/24 dev eth0");
    assert!(exec[1].starts_with("sh -c 'echo "), "{exec:?}");
    assert_eq!(node("pc").env["A"], "b");
    assert!(elements::is_router(node("r1")));
    for what in ["link r1:eth0 - s1:p2: delay; ", "link r1:eth0 - s1:p2: queue; ", "node h1: a hub"]
    {
        assert!(lab.left_out.iter().any(|one| one.starts_with(what)), "{:?}", lab.left_out);
    }
}

#[test]
fn a_queue_that_marks_is_one_in_mininet_and_told_for_core() {
    const LAB: &str = "\
name: marks
topology:
  nodes: {a: {}, b: {}}
  links: [{endpoints: ['a:eth0', 'b:eth0'], rate: 10mbit, queue: {discipline: red, ecn: true}}]
";
    let plan = plan_from_text("marks.yaml", LAB).unwrap();
    let mininet = export(&plan, ExportFormat::Mininet);
    assert!(mininet.text.contains("enable_ecn") && !mininet.text.contains("enable_red"));
    assert_eq!(mininet.left_out, [""; 0]);
    let core = export(&plan, ExportFormat::Core);
    let expected = "link a:eth0 - b:eth0: queue: its bytes or discipline";
    assert!(core.left_out.iter().any(|one| one == expected), "{:?}", core.left_out);
}

#[test]
fn a_program_for_mininet_has_what_its_options_say() {
    let mininet = exported(ExportFormat::Mininet);
    for part in [
        "self.addHost(\"r1\", ip=\"10.0.0.1/24\", cls=Router)",
        "self.addSwitch(\"s1\", cls=OVSBridge, dpid=\"0000000000000002\", stp=True)",
        "params1={\"ip\": \"10.0.0.1/24\", \"bw\": 10, \"delay\": \"5000us\", \"loss\": 0.5, \"max_queue_size\": 50}",
        "addr1=\"02:00:00:00:00:07\"",
        "net[\"r1\"].cmd(\"ip address replace fd00::1/64 dev eth1\")",
        "net[\"web\"].popen([\"sleep\", \"1000\"])",
    ] {
        assert!(mininet.text.contains(part), "{part}: {}", mininet.text);
    }
    assert!(mininet.left_out.contains(&"node h1: a hub; it is a switch".to_string()));
    // An interface of a switch is one of the host's.
    assert!(!mininet.text.contains("\"p1\"") && mininet.text.contains("intfName1=\"eth0\""));
}
