//! Every check on a host that is as it should be, and on one where all of it is wrong.

use super::*;

fn reports(recording: &str) -> Vec<Report> {
    reports_with(recording, Settings { traffic_class: 104, ..Settings::default() })
}

fn reports_with(recording: &str, settings: Settings) -> Vec<Report> {
    examine(&Subject { host: &Host::recorded(recording).expect("a recording"), disk: DISK, settings })
}

const GOOD: &str = include_str!("testdata/good.json");
const BAD: &str = include_str!("testdata/bad.json");

#[test]
fn every_check_finds_a_good_host_good() {
    for report in reports(GOOD) {
        assert!(!report.findings.is_empty(), "{}: nothing to check", report.check);
        assert!(report.findings.iter().all(|finding| finding.verdict == Verdict::Good), "{report:?}");
    }
}

#[test]
fn every_check_finds_what_is_wrong_and_says_how_to_mend_it() {
    for report in reports(BAD) {
        let wrong: Vec<&Finding> = report.findings.iter().filter(|finding| finding.verdict != Verdict::Good).collect();
        assert!(!wrong.is_empty(), "{report:?}");
        assert!(wrong.iter().all(|finding| finding.fix.as_ref().is_some_and(|fix| !fix.is_empty())), "{report:?}");
    }
}

#[test]
fn the_report_of_a_bad_host() {
    assert_eq!(lines(&reports(BAD), true), include_str!("testdata/bad.txt"));
}

#[test]
fn congestion_is_looked_at_on_the_priority_of_the_lanes_packets() {
    let said = |traffic_class| lines(&reports_with(GOOD, Settings { traffic_class, ..Settings::default() }), true);
    let good = said(104);
    assert!(good.contains("good  rdma congestion: eth1: ECN is on for RoCE on priority 3"), "{good}");
    assert!(good.contains("good  rdma congestion: eth1: PFC is on for priority 3"), "{good}");
    // What is on is on for others.
    let unmarked = said(0);
    assert!(unmarked.contains("BAD   rdma congestion: eth1: ECN is off for RoCE on priority 0"), "{unmarked}");
    assert!(
        unmarked.contains("fix: transport.rdma_traffic_class = 104, for priority 3 has it; or mlnx_qos"),
        "{unmarked}"
    );
    assert!(unmarked.contains("prio-pfc 0:on"), "{unmarked}");
}

#[test]
fn why_rdma_cannot_be_had_is_said() {
    let host = r#""folder /sys/class/infiniband": "mlx5_0", "folder /dev/infiniband": "uverbs0""#;
    let said = |more: &str, transport| lines(&reports_with(&format!("{{{host}, {more}}}"), transport), true);
    let refused = said(
        r#""verbs": "libibverbs is too old: it lacks ibv_query_gid", "open /dev/infiniband/uverbs0": "Permission denied""#,
        Settings::default(),
    );
    assert!(refused.contains("BAD   rdma devices: libibverbs is too old: it lacks ibv_query_gid"), "{refused}");
    assert!(refused.contains("/dev/infiniband/uverbs0 cannot be opened: Permission denied"), "{refused}");
    let usable = r#""verbs": "yes", "open /dev/infiniband/uverbs0": "yes""#;
    assert!(!said(usable, Settings::default()).contains("BAD   rdma devices"));
    let tls = said(usable, Settings { tls: true, ..Settings::default() });
    assert!(tls.contains("the lane rdma is not taken: transport.tls_certificate is set"), "{tls}");
    let forbidden = said(usable, Settings { forbids_rdma: true, ..Settings::default() });
    assert!(forbidden.contains("the lane rdma is not taken: transport.lanes does not name it"), "{forbidden}");
}

#[test]
fn a_host_without_cuda_is_wrong_only_if_it_is_wanted() {
    let missing = r#"{"cuda driver": "libcuda.so.1 is not there", "nvrtc": "libnvrtc is not there"}"#;
    let said = |settings| lines(&reports_with(missing, settings), true);
    let idle = said(Settings::default());
    assert!(idle.contains("none  gpu driver: the device cuda is not available: libcuda.so.1 is not there\n"), "{idle}");
    assert!(idle.contains("none  nvrtc: not looked for"), "{idle}");
    let wanted = said(Settings { wants_cuda: true, ..Settings::default() });
    assert!(
        wanted.contains("BAD   gpu driver: the device cuda is not available: libcuda.so.1 is not there"),
        "{wanted}"
    );
    assert!(wanted.contains("fix: install driver 545 or later, or engine.device = cpu; for a container: "), "{wanted}");
}

#[test]
fn the_libraries_of_cuda_suit_the_driver_and_the_card() {
    let said = |driver: &str, capability: &str, nvrtc: &str, cublas: &str, settings| {
        let cards = format!("Card; {capability}; 1073741824");
        let facts = [("cuda driver", driver), ("cuda cards", &cards), ("nvrtc", nvrtc), ("cublaslt", cublas)];
        let facts: std::collections::BTreeMap<_, _> = facts.into_iter().collect();
        lines(&reports_with(&serde_json::to_string(&facts).expect("texts"), settings), true)
    };
    let exact = Settings::default();
    let check = |text: String, line: &str| assert!(text.contains(line), "{line}: {text}");
    check(said("12.8", "9.0", "12.4", "12.4", exact), "good  nvrtc: libnvrtc 12.4; 12.3 or later is wanted");
    check(said("13.0", "9.0", "12.4", "12.4", exact), "good  nvrtc: libnvrtc 12.4;");
    check(said("12.8", "9.0", "13.0", "-", exact), "BAD   nvrtc: libnvrtc 13.0;");
    check(said("12.8", "9.0", "13.0", "-", exact), "fix: pip install --target /opt/cuda nvidia-cuda-nvrtc-cu12;");
    check(said("12.8", "9.0", "11.8", "-", exact), "BAD   nvrtc: libnvrtc 11.8;");
    check(said("13.0", "10.0", "12.4", "-", exact), "BAD   nvrtc: libnvrtc 12.4; 12.8 or later is wanted");
    check(
        said("13.0", "9.0", "libnvrtc is not there", "-", exact),
        "BAD   nvrtc: libnvrtc is not there; 12.3 or later",
    );
    check(said("13.0", "9.0", "13.0", "libcublasLt is not there", exact), "none  cublaslt: libcublasLt is not there;");
    let fast = Settings { wants_fast: true, ..exact };
    check(said("13.0", "9.0", "13.0", "libcublasLt is not there", fast), "BAD   cublaslt: libcublasLt is not there");
    check(said("12.2", "7.5", "12.2", "-", exact), "BAD   gpu cards: 0: Card, 1 GiB, compute capability 7.5");
}

#[test]
fn ports_that_are_reserved_are_nobody_elses() {
    let lines_with = |reserved: &str| {
        let range = r#""file /proc/sys/net/ipv4/ip_local_port_range": "1024\t60999""#;
        let recording = format!(r#"{{{range}, "file /proc/sys/net/ipv4/ip_local_reserved_ports": "{reserved}"}}"#);
        lines(&reports(&recording), true)
    };
    assert!(lines_with("8000-8001,9000-9012").contains("1024 to 60999 for connections that begin here\n"));
    assert!(lines_with("9000-9001").contains("any of them may take 8000,8001,9002,9011,9012,"));
}

#[test]
fn an_empty_host_has_nothing_to_check_and_breaks_nothing() {
    let reports = reports("{}");
    assert_eq!(count(&reports, Verdict::Bad), 0, "{}", lines(&reports, true));
}

#[test]
fn a_recording_says_the_same_as_its_host() {
    let this = Host::this();
    let disk = std::env::temp_dir().display().to_string();
    let settings = Settings::default();
    let seen = examine(&Subject { host: &this, disk: &disk, settings });
    let again = Host::recorded(&this.recording()).expect("a recording");
    assert_eq!(lines(&examine(&Subject { host: &again, disk: &disk, settings }), true), lines(&seen, true));
    assert!(Host::recorded("[1]").is_err_and(|why| why.to_string().starts_with("it is no recording")));
}

/// A recording comes from elsewhere: whatever its facts say, every check comes to an end with it.
#[test]
fn a_recording_that_lies_breaks_nothing() {
    const SEED: u64 = 20;
    println!("seed {SEED}");
    let odd = ["", "-1", "0", "18446744073709551616", "1e999", "nan", "\u{0}", "ü", "a b\nc\td", ":", "0-", "x/y:z"];
    let mut state = SEED;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for n in 0..2000 {
        let text = if n % 2 == 0 { GOOD } else { BAD };
        let mut facts: std::collections::BTreeMap<String, String> = serde_json::from_str(text).expect("a recording");
        let names: Vec<String> = facts.keys().cloned().collect();
        for _ in 0..=below(8) {
            let name = names[below(names.len())].clone();
            let Some(fact) = facts.get_mut(&name) else { continue };
            match below(4) {
                0 => drop(facts.remove(&name)),
                1 => *fact = odd[below(odd.len())].to_owned(),
                2 => *fact = fact.chars().take(below(fact.chars().count() + 1)).collect(),
                _ => {
                    // An odd word in the place of one.
                    let words: Vec<&str> = fact.split(' ').collect();
                    let at = below(words.len());
                    let word = odd[below(odd.len())];
                    let changed = words.iter().enumerate().map(|(n, old)| if n == at { word } else { *old });
                    *fact = changed.collect::<Vec<_>>().join(" ");
                }
            }
        }
        let recording = serde_json::to_string(&facts).expect("texts");
        assert!(!reports(&recording).is_empty(), "change {n}");
    }
}
