use std::path::Path;

use super::routing_text::{daemons, Translated};
use crate::import::draft::Position;
use crate::import::{read_text, Format, Imported};

/// A scenario of CORE: n1 and n2 with these services, a link, and configurations of services.
fn core(services: &str, configurations: &str) -> Imported {
    let named: String =
        services.split_whitespace().map(|name| format!("<service name='{name}'/>")).collect();
    let text = format!(
        "<scenario>\n<devices>\n\
         <device id='7' name='n1' type='router'><services>{named}</services></device>\n\
         <device id='8' name='n2' type='PC'><services/></device>\n</devices>\n\
         <links><link node1='7' node2='8'>\
         <iface1 name='eth0' ip4='10.0.0.9' ip4_mask='24' ip6='a::1' ip6_mask='64'/>\
         <iface2 name='eth0' ip4='10.0.0.20' ip4_mask='24'/></link></links>\n\
         <service_configurations>{configurations}</service_configurations>\n</scenario>"
    );
    read_text(Path::new("x.xml"), Format::Core, &text).unwrap()
}

fn exec(imported: &Imported, node: &str) -> Vec<String> {
    let node = &imported.topology.topology.nodes[node].value;
    node.exec.iter().map(|line| line.value.clone()).collect()
}

fn left_out(imported: &Imported) -> Vec<String> {
    imported.left_out.iter().map(|one| one.what.clone()).collect()
}

#[test]
fn routing_services_share_a_configuration_of_core() {
    let read = core("zebra OSPFv2 OSPFv3 RIP RIPNG Babel BGP vtysh", "");
    let [script] = &exec(&read, "n1")[..] else { panic!("{read:?}") };
    for part in [
        "# services: zebra, OSPFv2, OSPFv3, RIP, RIPNG, Babel, BGP, vtysh\n",
        "interface eth0\n ip ospf network point-to-point\n ip ospf hello-interval 2\n",
        " ipv6 ospf6 area 0.0.0.0\n babel wired\n babel split-horizon\n!\n",
        "router ospf\n ospf router-id 10.0.0.9\n network 10.0.0.9/24 area 0\n!\n",
        "router ospf6\n ospf6 router-id 10.0.0.9\n!\n",
        "router bgp 7\n bgp router-id 10.0.0.9\n no bgp ebgp-requires-policy\n redistribute connected\n!\n",
        "router rip\n redistribute static\n redistribute connected\n redistribute ospf\n network 0.0.0.0/0\n!\n",
        "router ripng\n",
        "router babel\n network eth0\n redistribute ipv4 connected\n redistribute ipv6 connected\n!\n",
        "for one in zebra ospfd ospf6d bgpd ripd ripngd babeld; do $one -d || exit; done\n",
    ] {
        assert!(script.contains(part), "{part}: {script}");
    }
    assert_eq!(left_out(&read), [""; 0]);
}

#[test]
fn a_configuration_of_the_scenario_replaces_the_generated_one() {
    let config = "<service name='zebra' node='7'><startups><startup>sh quaggaboot.sh zebra</startup></startups>\
        <validates><validate>pidof zebra</validate></validates><files>\
        <file name='/usr/local/etc/quagga/Quagga.conf'>interface eth0\n ip mfea\n!\nrouter ospf\n  router-id 1.1.1.1\n!\n</file>\
        <file name='quaggaboot.sh'>exit 1</file></files></service>";
    let read = core("zebra OSPFv2 RIP", config);
    let [script] = &exec(&read, "n1")[..] else { panic!("{read:?}") };
    assert!(script.contains("router ospf\n ospf router-id 1.1.1.1\n!\n"), "{script}");
    // A protocol that is not in the text is generated.
    assert!(script.contains("router rip\n") && !script.contains("hello-interval"), "{script}");
    assert!(script.contains("for one in zebra ospfd ripd;"), "{script}");
    assert_eq!(left_out(&read), ["node n1: routing: ip mfea"]);
}

#[test]
fn pim_is_set_at_interfaces() {
    let read = core("FRRzebra FRRpimd", "");
    let [script] = &exec(&read, "n1")[..] else { panic!("{read:?}") };
    assert!(script.contains("interface eth0\n ip igmp\n ip pim\n!\n"), "{script}");
    assert!(script.contains("for one in zebra pimd;"), "{script}");
}

#[test]
fn manet_extensions_run_without_designated_routers() {
    let read = core("zebra OSPFv3MDR", "");
    assert!(exec(&read, "n1")[0].contains("for one in zebra ospf6d;"));
    assert!(left_out(&read)[0].contains("OSPFv3MDR: designated routers of a MANET"));
}

#[test]
fn texts_of_quagga_become_those_of_frr() {
    let given = "hostname x\n! a word\nrouter bgp 65001\n neighbor 10.0.0.2 remote-as 65002\n!\n\
         router ospf6\n instance-id 65\n router-id 10.0.0.1\n!\nrouter pim\n ip pim bsr-candidate eth0\n!\n\
         interface lo0\n ip address 127.0.0.1/8\n ip address 10.9.9.9/32\n ip pim\n!\nip route 10.1.0.0/16 10.0.0.3\n";
    let mut translated = Translated::default();
    translated.add(&Position { line: 4, column: 2 }.of(given.to_string()));
    assert_eq!(
        translated.text,
        "hostname x\nrouter bgp 65001\n no bgp ebgp-requires-policy\n neighbor 10.0.0.2 remote-as 65002\n!\n\
         router ospf6\n ospf6 router-id 10.0.0.1\n!\nexit\n!\ninterface lo\n ip address 10.9.9.9/32\n ip pim\n!\n\
         ip route 10.1.0.0/16 10.0.0.3\n"
    );
    let lines: Vec<&str> = translated.left_out.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["instance-id 65", "router pim", "ip pim bsr-candidate eth0"]);
    assert_eq!(daemons(&translated.text), ["zebra", "staticd", "ospf6d", "bgpd", "pimd"]);
}

#[test]
fn who_decides_on_policies_is_not_overruled() {
    let given = "router bgp 1\n bgp ebgp-requires-policy\n!\n";
    let mut translated = Translated::default();
    translated.add(&Position { line: 1, column: 1 }.of(given.to_string()));
    assert_eq!(translated.text, given);
}

#[test]
fn servers_are_configured_from_interfaces() {
    let read =
        core("DHCP DHCPClient radvd HTTP FTP SSH UCARP pcap atd NAT DefaultMulticastRoute", "");
    let all = exec(&read, "n1");
    assert_eq!(all.len(), 11);
    for part in [
        "subnet 10.0.0.0 netmask 255.255.255.0 {\n  pool {\n    range 10.0.0.128 10.0.0.254;\n    option routers 10.0.0.9;\n",
        "dhclient -nw -pf /run/dhclient-eth0.pid -lf /run/dhclient-eth0.lease eth0",
        "interface eth0\n{\n  AdvSendAdvert on;\n",
        "prefix a::1/64\n",
        "<h1>n1 web server</h1>",
        "<li>eth0 - 10.0.0.9/24, a::1/64</li>",
        "vsftpd /etc/vsftpd.conf",
        "ssh-keygen -q -t ed25519",
        "ucarp -B ",
        "-w /var/tmp/$(hostname).eth0.pcap -i eth0",
        "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE",
        "ip route replace 224.0.0.0/4 dev eth0",
    ] {
        assert!(all.iter().any(|script| script.contains(part)), "{part}: {all:#?}");
    }
    assert!(all.iter().all(|script| script.starts_with("# services: ")));
}

#[test]
fn files_of_the_scenario_replace_those_of_a_server() {
    let config =
        "<service name='HTTP' node='7'><files><file name='/var/www/index.html'>Mine\n</file>\
        <file name='other'>x</file></files></service>";
    let read = core("HTTP", config);
    let script = &exec(&read, "n1")[0];
    assert!(
        script.contains("cat > /var/www/index.html <<'END-OF-FILE'\nMine\nEND-OF-FILE\n"),
        "{script}"
    );
    assert!(!script.contains("n1 web server") && script.contains("Listen 80"));
    assert_eq!(left_out(&read), ["node n1: service HTTP: file other"]);
}

#[test]
fn bird_has_one_configuration_too() {
    let read = core("bird BIRD_OSPFv2 BIRD_RIP BIRD_RADV", "");
    let [script] = &exec(&read, "n1")[..] else { panic!("{read:?}") };
    for part in [
        "router id 10.0.0.9;\n",
        "protocol ospf v2 { ipv4 { import all; export all; }; area 0 { interface \"eth0\" { }; }; }\n",
        "protocol rip { ipv4 { import all; export all; }; interface \"eth0\" { mode multicast; }; }\n",
        "protocol radv { interface \"eth0\" { }; }\n",
    ] {
        assert!(script.contains(part), "{part}: {script}");
    }
}

#[test]
fn services_with_commands_of_their_own() {
    let config = "<service name='UserDefined' node='7'><startups><startup>sh a.sh</startup></startups>\
        <files><file name='a.sh'>echo a\nEND-OF-FILE</file></files></service>\
        <service name='Firewall' node='7'><files><file name='firewall.sh'>iptables -F</file></files></service>\
        <service name='Traffic' node='7'><startups><startup>python3 t.py</startup></startups>\
        <files><file name='t.py'>print()</file></files></service>";
    let read = core("UserDefined Firewall Traffic StaticRoute", config);
    let all = exec(&read, "n1");
    assert_eq!(all[0], "sh -s <<'END-OF-FILE-'\necho a\nEND-OF-FILE\nEND-OF-FILE-");
    assert_eq!(all[1], "bash -s <<'END-OF-FILE'\niptables -F\nEND-OF-FILE");
    assert!(all[2].ends_with("cat > t.py <<'END-OF-FILE'\nprint()\nEND-OF-FILE\npython3 t.py"));
    assert_eq!(
        left_out(&read),
        ["node n1: service StaticRoute, which has nothing to do by itself"]
    );
}

#[test]
fn routes_alone_need_no_daemon() {
    let text = "node n1 {\n type pc\n network-config {\n\thostname a\n\t!\n\tip route 0.0.0.0/0 10.0.0.1\n\t!\n\tipv6 route ::/0 a::1 5\n\t}\n}\n";
    let read = read_text(Path::new("x.imn"), Format::Imn, text).unwrap();
    assert_eq!(
        exec(&read, "a"),
        ["ip route replace 0.0.0.0/0 via 10.0.0.1", "ip route replace ::/0 via a::1 metric 5"]
    );
}

#[test]
fn lines_below_an_interface_stay_there() {
    let text = "node n3 {\n type router\n model quagga\n network-config {\n\thostname r\n\t!\n\tinterface eth0\n\t \
        ip address 10.0.0.1/24\n\t ip ospf cost 5\n\t!\n\trouter ospf\n\t network 10.0.0.0/24 area 0\n\t!\n\t}\n}\n";
    let read = read_text(Path::new("x.imn"), Format::Imn, text).unwrap();
    let [script] = &exec(&read, "r")[..] else { panic!("{read:?}") };
    assert!(
        script.contains(
            "!\ninterface eth0\n ip ospf cost 5\nrouter ospf\n network 10.0.0.0/24 area 0\n"
        ),
        "{script}"
    );
}

/// A router of IMUNES with these settings.
fn router_of_imunes(settings: &str) -> Imported {
    let text = format!(
        r#"{{"nodes": {{"n0": {{"type": "router", "name": "r", {settings}, "ifaces": {{"ifc0": {{"name": "eth0", "type": "phys"}}}}}}}}}}"#
    );
    read_text(Path::new("x.imn"), Format::Imn, &text).unwrap()
}

#[test]
fn routers_of_the_model_static_run_no_daemons() {
    let protocols = r#""router_config": "rip 1 ospf 0""#;
    let read = router_of_imunes(&format!(r#""model": "frr", {protocols}"#));
    assert!(exec(&read, "r")[0].contains("router rip\n"));
    let read = router_of_imunes(&format!(r#""model": "static", {protocols}"#));
    assert_eq!((exec(&read, "r"), left_out(&read)), (Vec::new(), Vec::new()));
    let share = r#""cpu": "{min 0} {max 50} {weight 1}", "snapshot": "vroot/vroot@mine""#;
    let read = router_of_imunes(&format!(r#""model": "static", {share}"#));
    assert_eq!(left_out(&read).len(), 2, "{read:?}");
}

/// An IPv6 address has several spellings. A line of OSPFv3 begins like the part of an interface.
#[test]
fn lines_of_core_4_are_understood() {
    let text = "node n1 {\n type router\n model OVS\n network-config {\n\thostname r\n\t!\n\tinterface eth0\n\t ipv6 address 2001:0::1/64\n\t!\n\t\
        router ospf6\n\t router-id 10.0.0.2\n\t interface eth0 area 0.0.0.0\n\t!\n }\n interface-peer {eth0 n2}\n}\n\
        node n2 {\n type lanswitch\n interface-peer {e0 n1}\n}\nlink l1 {\n nodes {n1 n2}\n}\n";
    let read = read_text(Path::new("x.imn"), Format::Imn, text).unwrap();
    let [routing, ssh] = &exec(&read, "r")[..] else { panic!("{read:?}") };
    let part = "router ospf6\n ospf6 router-id 10.0.0.2\n interface eth0 area 0.0.0.0\nexit\n";
    assert!(routing.contains(part) && !routing.contains("ipv6 ospf6 area"), "{routing}");
    assert!(ssh.contains("services: SSH"), "{ssh}");
    assert_eq!(left_out(&read), ["node r: service OvsService"]);
}

#[test]
fn imunes_has_a_translator_and_telnet() {
    let read = router_of_imunes(
        r#""services": ["telnet"], "nat64": {"tayga_ipv4_pool": "10.64.0.0/24", "tayga_mappings": ["10.64.0.9 a::9"]}"#,
    );
    let [nat64, telnet] = &exec(&read, "r")[..] else { panic!("{read:?}") };
    for part in ["ipv4-addr 10.64.0.0\n", "prefix 2001::/96\n", "map 10.64.0.9 a::9\n"] {
        assert!(nat64.contains(part), "{nat64}");
    }
    assert!(nat64.contains("ip route replace 10.64.0.0/24 dev tun0"), "{nat64}");
    assert!(telnet.contains("inetutils-inetd -p /run/inetd.pid"), "{telnet}");
    assert_eq!(left_out(&read), [""; 0]);
}

/// CORE's Quagga has OSPFv3 for IPv4, whose routes OSPF can have. IMUNES runs OSPFv3 at all interfaces.
#[test]
fn redistribution_between_families_is_left_out() {
    let text = "node n1 {\n type router\n model static\n network-config {\n\thostname r\n\t!\n\tinterface eth0\n\t ip address 10.0.0.1/24\n\t!\n\t\
        router ospf\n\t redistribute ospf6 metric-type 1\n\t redistribute rip\n\t!\n\trouter ospf6\n\t redistribute ospf\n\t redistribute ripng\n\t!\n }\n \
        interface-peer {eth0 \"\"}\n}\n";
    let read = read_text(Path::new("x.imn"), Format::Imn, text).unwrap();
    let script = &exec(&read, "r")[0];
    assert!(script.contains("router ospf6\n redistribute ripng\n!\nexit\ninterface eth0\n ipv6 ospf6 area 0.0.0.0\n"), "{script}");
    let of = |line: &str| format!("node r: routing: redistribute {line}");
    assert_eq!(left_out(&read), [of("ospf6 metric-type 1"), of("ospf")]);
}

/// IMUNES writes `router bgp` before the lines that the user gave.
#[test]
fn a_part_without_system_is_skipped_and_indented_parts_are_known() {
    let at = Position { line: 1, column: 1 };
    let mut translated = Translated::default();
    translated.add(&at.of(
        "router bgp\nrouter bgp 7\n neighbor a\n    router ospf\n     router-id 1.1.1.1\n".into(),
    ));
    let text = "router bgp 7\n no bgp ebgp-requires-policy\n neighbor a\n router ospf\n ospf router-id 1.1.1.1\n";
    assert_eq!(translated.text, text);
    assert_eq!(daemons(text), ["zebra", "ospfd", "bgpd"]);
}
