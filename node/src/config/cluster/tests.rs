//! Each mistake is named with its setting, its line and what to do.

use super::super::Config;
use super::*;

const IDS: [&str; 4] = [
    "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5",
    "12D3KooWJWoaqZhDaoEFshF7Rh1bpY9ohihFhzcW6d69Lr2NASuq",
    "12D3KooWRndVhVZPCiQwHBBBdg769GyrPUW13zxwqQyf9r3ANaba",
    "12D3KooWPT98FXMfDQYavZm66EeVjTqP9Nnehn1gyaydqV8L8BQw",
];

fn good() -> ClusterConfig {
    let peer = |id: &&str| PeerConfig {
        id: (*id).to_owned(),
        addresses: vec!["/dns/node.example/tcp/7070".to_owned()],
        weight: 1,
    };
    ClusterConfig { id: "test".to_owned(), peers: IDS[..3].iter().map(peer).collect(), ..ClusterConfig::default() }
}

#[test]
fn a_good_section_becomes_the_rules_of_a_node() {
    let mut config = good();
    config.operators = vec![IDS[3].to_owned()];
    config.peers[1].weight = 5;
    config.lease.duration_s = 60;
    config.wire_version_max = Some(3);
    (config.load.cpu, config.load.memory_full_percent, config.load.high_water) = (9, 70, 900);
    let identity = Identity::generate();
    config.peers.push(PeerConfig { id: identity.peer().to_string(), addresses: vec![], weight: 7 });
    config.voters = IDS[..3].iter().map(|id| (*id).to_owned()).collect();
    let cluster = config.understand(30_000).unwrap();
    assert!(cluster.warnings.is_empty(), "{:?}", cluster.warnings);
    let rules = cluster.rules(&identity, 9).unwrap();
    assert_eq!((rules.cluster, rules.me, rules.boot), (ClusterId::of_name("test").0, identity.node(), 9));
    assert_eq!((rules.weight, rules.peers.len(), rules.peers[1].1), (7, 3, 5));
    assert_eq!((rules.lease.duration, rules.fetch_timeout), (60 * SECOND, 30 * SECOND));
    assert_eq!(rules.voters, IDS[..3].iter().map(|id| node_of(&id.parse().unwrap())).collect::<Vec<_>>());
    assert_eq!((rules.route.low_water, rules.route.high_water), (500, 900));
    let load = cluster.load();
    assert_eq!((load.weights.cpu, load.weights.fetches, load.memory_full, load.high_water), (9, 3, 700, 900));
    let settings = cluster.settings(identity.clone(), SwarmKey::generate()).unwrap();
    assert_eq!((settings.peers.len(), settings.stranger), (5, None));
    assert_eq!(settings.versions.newest, 3);
    assert_eq!(settings.peers.iter().filter(|peer| peer.role == Role::Operator).count(), 1);
}

#[test]
fn numbers_left_out_are_those_of_the_cores() {
    let identity = Identity::generate();
    let mut config = good();
    config.peers.push(PeerConfig { id: identity.peer().to_string(), addresses: vec![], weight: 1 });
    let rules = config.understand(30_000).unwrap().rules(&identity, 1).unwrap();
    let plain = ClusterRules::new(rules.cluster, rules.me, 1, rules.peers.clone(), rules.voters.clone());
    assert_eq!(format!("{rules:?}"), format!("{plain:?}"));
    assert_eq!(config.understand(30_000).unwrap().load(), LoadRules::default());
}

#[test]
fn every_mistake_is_named_with_what_to_do() {
    type Break = fn(&mut ClusterConfig);
    let wrong: [(Break, &str, &str); 33] = [
        (|c| c.id = String::new(), "cluster.id", "the same on every node"),
        (|c| c.id = "two words".into(), "cluster.id", "1 to 64"),
        (|c| c.peers[1].id = "nobody".into(), "cluster.peers[1].id", "orbweaver keygen"),
        (|c| c.peers[2].id = IDS[0].into(), "cluster.peers[2].id", "is already cluster.peers[0].id"),
        (|c| c.peers[0].weight = 0, "cluster.peers[0].weight", "between 1 and"),
        (
            |c| c.peers[0].addresses[0] = "node1:7070".into(),
            "cluster.peers[0].addresses[0]",
            "/dns/node1.example/tcp/7070",
        ),
        (|c| c.peers[0].addresses[0] = "/ip4/1.2.3.4".into(), "cluster.peers[0].addresses[0]", "no TCP port"),
        (
            |c| c.peers[0].addresses[0] = "/ip4/1.2.3.4/udp/7/quic-v1".into(),
            "cluster.peers[0].addresses[0]",
            "only there the swarm key protects",
        ),
        (
            |c| c.peers[0].addresses[0] = format!("/ip4/1.2.3.4/tcp/7/p2p/{}", IDS[1]),
            "cluster.peers[0].addresses[0]",
            "leave /p2p/",
        ),
        (|c| c.listen = vec!["7070".into()], "cluster.listen[0]", "/ip4/"),
        (|c| c.voters = vec![IDS[0].into(), IDS[3].into()], "cluster.voters[1]", "none of cluster.peers"),
        (|c| c.voters = vec![IDS[0].into(), IDS[0].into()], "cluster.voters[1]", "twice"),
        (|c| c.operators = vec![IDS[1].into()], "cluster.operators[0]", "is already cluster.peers[1].id"),
        (
            |c| (c.operators, c.viewers) = (vec![IDS[3].into()], vec![IDS[3].into()]),
            "cluster.viewers[0]",
            "is already cluster.operators[0]",
        ),
        (|c| c.wire_version_max = Some(0), "cluster.wire_version_max", "leave it out for the newest"),
        (|c| c.wire_version_max = Some(u16::MAX), "cluster.wire_version_max", "leave it out for the newest"),
        (|c| c.replicas = 0, "cluster.replicas", "between 1 and 7"),
        (|c| c.write_quorum = 4, "cluster.write_quorum", "raise cluster.replicas"),
        (|c| c.content_copies = 3, "cluster.content_copies", "must be 2"),
        (|c| c.write_quorum = 0, "cluster.write_quorum", "at least 1"),
        (|c| c.lease.duration_s = 31, "cluster.lease.duration_s", "at least 32, or the fetch time-out shorter"),
        (|c| c.lease.drift_ppm = 600_000, "cluster.lease.drift_ppm", "below 500000"),
        (|c| c.membership.probe_every_ms = 0, "cluster.membership.probe_every_ms", "between 1 and"),
        (|c| c.load.mailbox = 1_001, "cluster.load.mailbox", "between 0 and 1000"),
        (|c| c.load.memory_full_percent = 0, "cluster.load.memory_full_percent", "between 1 and 100"),
        (|c| c.load.disk_full_percent = 101, "cluster.load.disk_full_percent", "between 1 and 100"),
        (|c| c.load.high_water = 1_001, "cluster.load.high_water", "between 1 and 1000"),
        (|c| c.load.low_water = 850, "cluster.load.low_water", "must be below cluster.load.high_water, 850"),
        (|c| c.load.near = 1_001, "cluster.load.near", "between 0 and 1000"),
        (|c| c.load.report_age_max_s = 1, "cluster.load.report_age_max_s", "between 6 and 3600"),
        (
            |c| {
                let LoadConfig { cpu, io_wait, memory, disk, fetches, mailbox, load_average, .. } = &mut c.load;
                [cpu, io_wait, memory, disk, fetches, mailbox, load_average].into_iter().for_each(|weight| *weight = 0);
            },
            "cluster.load.cpu",
            "no node is ever busy",
        ),
        (|c| c.connections.connections_max = 3, "cluster.connections.connections_max", "at least 14"),
        (|c| c.connections.memory_percent_max = 0, "cluster.connections.memory_percent_max", "between 1 and 100"),
    ];
    for (break_it, setting, remedy) in wrong {
        let mut config = good();
        break_it(&mut config);
        let complaint = config.understand(30_000).unwrap_err().to_string();
        assert!(complaint.starts_with(&format!("{setting}: ")) && complaint.contains(remedy), "{complaint}");
    }
    assert!(good().understand(30_000).is_ok());
}

#[test]
fn the_shortest_lease_that_is_named_is_long_enough() {
    for fetch_timeout_ms in [1_000, 15_000, 30_000, 120_000] {
        let mut config = good();
        config.lease.duration_s = 1;
        let complaint = config.understand(fetch_timeout_ms).unwrap_err().to_string();
        let least = complaint.split("at least ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        config.lease.duration_s = least.parse().unwrap();
        assert!(config.understand(fetch_timeout_ms).is_ok(), "{complaint}");
        config.lease.duration_s -= 1;
        assert!(config.understand(fetch_timeout_ms).is_err(), "{complaint}");
    }
}

#[test]
fn what_is_unwise_is_warned_of() {
    let mut config = good();
    config.peers.pop();
    let warnings = config.understand(30_000).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with("cluster.voters: 2 voters")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.starts_with("cluster.replicas: 3 copies")), "{warnings:?}");
    let mut config = good();
    config.lease.duration_s = 33;
    let warnings = config.understand(30_000).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with("cluster.lease.duration_s")), "{warnings:?}");
    assert!(good().understand(30_000).unwrap().warnings.is_empty());
}

#[test]
fn a_node_whose_identity_is_not_listed_is_told_what_to_add() {
    let cluster = good().understand(30_000).unwrap();
    let identity = Identity::generate();
    let complaint = cluster.settings(identity.clone(), SwarmKey::generate()).unwrap_err().to_string();
    assert!(complaint.starts_with("cluster.identity: node.key holds the identity"), "{complaint}");
    assert!(complaint.contains(&format!("add {{ id = \"{}\"", identity.peer())), "{complaint}");
    assert!(cluster.rules(&identity, 1).is_err());
    let open = ClusterConfig { admission: Admission::SwarmKey, ..good() };
    let settings = open.understand(30_000).unwrap().settings(identity, SwarmKey::generate()).unwrap();
    assert_eq!(settings.stranger, Some(Role::Node));
}

#[test]
fn mistakes_in_a_file_are_named_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    let head =
        format!("[cluster]\nid = \"test\"\npeers = [\n  {{ id = \"{}\" }},\n  {{ id = \"{}\" }},\n]\n", IDS[0], IDS[1]);
    let complaint = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Config::read(&path).unwrap_err().to_string()
    };
    for (tail, line, word) in [
        ("speed = 9\n".to_owned(), "line 7", "speed"),
        (format!("voters = [\"{}\"]\n", IDS[3]), "line 7", "none of cluster.peers"),
        ("write_quorum = 9\n".to_owned(), "line 7", "cluster.write_quorum"),
        ("[cluster.lease]\n\nduration_s = 20\n".to_owned(), "line 9", "cluster.lease.duration_s"),
        ("[[cluster.peers]]\n".to_owned(), "line 7", "peers"),
    ] {
        let complaint = complaint(&format!("{head}{tail}"));
        assert!(complaint.contains(line) && complaint.contains(word), "{complaint}");
        assert!(complaint.contains("cluster.toml"), "{complaint}");
    }
    let twice = complaint(&head.replace(IDS[1], IDS[0]));
    assert!(twice.contains("line 5") && twice.contains("cluster.peers[1].id"), "{twice}");
    std::fs::write(&path, &head).unwrap();
    let read = Config::read(&path).unwrap().cluster.unwrap();
    assert_eq!(read.identity, folder.path().join("node.key"), "keys lie beside the file");
}

#[test]
fn the_sample_file_shows_every_setting_with_its_default() {
    let sample = include_str!("../../../../cluster.toml");
    let section = &sample[sample.find("\n[cluster]\n").expect("it is there")..];
    let config: Config = toml::from_str(sample).unwrap();
    let cluster = config.cluster.unwrap();
    let understood = cluster.understand(config.fetch.limits.fetch_timeout_ms).unwrap();
    assert!(understood.warnings.is_empty(), "{:?}", understood.warnings);
    assert_eq!(cluster.peers.len(), 3);
    let defaults = ClusterConfig { id: cluster.id.clone(), peers: cluster.peers.clone(), ..ClusterConfig::default() };
    assert_eq!(cluster, defaults);
    let table = toml::Table::try_from(&defaults).unwrap();
    let mut names: Vec<&String> = table.keys().collect();
    names.extend(table.values().filter_map(|value| value.as_table()).flat_map(|inner| inner.keys()));
    names.extend(table["peers"].as_array().unwrap()[0].as_table().unwrap().keys());
    for name in names {
        assert!(section.contains(name.as_str()), "{name} is not in the sample file");
    }
}
