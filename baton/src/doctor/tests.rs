//! Every check on a host that is as it should be, and on one where all of it is wrong.

use super::*;

fn reports(recording: &str) -> Vec<Report> {
    examine(&Patient { host: &Host::recorded(recording).expect("a recording"), disk: DISK })
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
        assert!(wrong.iter().all(|finding| finding.mend.as_ref().is_some_and(|mend| !mend.is_empty())), "{report:?}");
    }
}

#[test]
fn the_report_of_a_bad_host() {
    assert_eq!(lines(&reports(BAD), true), include_str!("testdata/bad.txt"));
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
    let seen = examine(&Patient { host: &this, disk: &disk });
    let again = Host::recorded(&this.recording()).expect("a recording");
    assert_eq!(lines(&examine(&Patient { host: &again, disk: &disk }), true), lines(&seen, true));
    assert!(Host::recorded("[1]").is_err_and(|why| why.starts_with("it is no recording")));
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
