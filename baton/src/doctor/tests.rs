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
