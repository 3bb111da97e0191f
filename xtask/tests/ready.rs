//! `scripts/ready`, which says whether a commit has passed `.ci/run`, in repositories of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Where the programs are that the script calls.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A repository with the script and a commit, and a cache folder.
struct Repository {
    folder: TempDir,
}

impl Repository {
    fn new() -> Self {
        let this = Self { folder: tempfile::tempdir().expect("there is room for a folder") };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/ready");
        std::fs::create_dir_all(this.root().join("scripts")).expect("the folder can be written to");
        std::fs::copy(script, this.root().join("scripts/ready")).expect("the script can be copied");
        this.git(&["init", "--quiet"]);
        this.commit("one");
        this
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("cache/baton/ci-green")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program)
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .envs([("PATH", PATH), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .output()
            .unwrap_or_else(|error| panic!("{program} could not be run: {error}"))
    }

    fn git(&self, arguments: &[&str]) -> String {
        let who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"];
        let output = self.run("git", &[&who[..], arguments].concat());
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Writes a file and commits everything.
    fn commit(&self, name: &str) {
        std::fs::write(self.root().join(name), name).expect("the folder can be written to");
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", name]);
    }

    /// What the script says, after its exit status.
    #[track_caller]
    fn ready(&self, arguments: &[&str], succeeds: bool) -> String {
        let output = self.run(&self.root().join("scripts/ready").display().to_string(), arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.success(), succeeds, "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// A run of CI that passes, of so many seconds.
    fn pass(&self, seconds: &str) -> String {
        let commit = self.ready(&["begin"], true);
        self.ready(&["passed", commit.trim(), seconds], true)
    }

    /// Lines of the ledger.
    fn lines(&self) -> usize {
        std::fs::read_to_string(self.ledger()).map_or(0, |ledger| ledger.lines().count())
    }
}

#[track_caller]
fn check_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn a_commit_is_ready_when_it_passed_and_nothing_is_uncommitted() {
    let repository = Repository::new();
    let short = repository.git(&["rev-parse", "--short", "HEAD"]);
    check_says(&repository.ready(&[], false), &[&short, "nor a commit before it has passed"]);
    repository.pass("2170");
    let line = std::fs::read_to_string(repository.ledger()).expect("there is a ledger");
    let words: Vec<&str> = line.split_whitespace().collect();
    let [hash, date, duration] = words[..] else { panic!("three words: {line}") };
    assert_eq!((hash, duration), (repository.git(&["rev-parse", "HEAD"]).as_str(), "36:10"));
    assert!(date.len() == 20 && date.contains('T') && date.ends_with('Z'), "{date} is no date in UTC");
    check_says(&repository.ready(&[], true), &[&format!("{short} passed .ci/run at {date} in 36:10")]);

    std::fs::write(repository.root().join("new"), "").expect("the folder can be written to");
    check_says(&repository.ready(&[], false), &["has not passed", &short, "uncommitted:", "?? new"]);
}

#[test]
fn what_came_since_the_last_commit_that_passed_is_said() {
    let repository = Repository::new();
    repository.pass("60");
    repository.commit("two");
    repository.pass("61");
    let passed = repository.git(&["rev-parse", "--short", "HEAD"]);
    repository.commit("three");
    let said = repository.ready(&[], false);
    check_says(&said, &[&format!("{passed} passed .ci/run at"), "in 1:01", "three", "1 file changed"]);
    assert!(!said.contains("two") && !said.contains("uncommitted"), "{said}");
    // What passed on another branch is no ancestor.
    repository.git(&["checkout", "--quiet", "--orphan", "other"]);
    repository.commit("four");
    check_says(&repository.ready(&[], false), &["nor a commit before it has passed"]);
}

#[test]
fn a_run_is_noted_only_where_all_of_it_was_committed_and_stayed() {
    let repository = Repository::new();
    let begun = repository.ready(&["begin"], true);
    repository.commit("two");
    check_says(&repository.ready(&["passed", begun.trim(), "1"], true), &["Not noted"]);
    std::fs::write(repository.root().join("two"), "changed").expect("the folder can be written to");
    assert_eq!(repository.ready(&["begin"], true), "");
    check_says(&repository.ready(&["passed", "", "1"], true), &["Not noted"]);
    let head = repository.git(&["rev-parse", "HEAD"]);
    check_says(&repository.ready(&["passed", &head, "1"], true), &["Not noted"]);
    assert_eq!(repository.lines(), 0);
}

#[test]
fn the_ledger_keeps_its_last_lines() {
    let repository = Repository::new();
    let old = |number: usize| format!("{number:040x} 2026-01-01T00:00:00Z 1:00\n");
    std::fs::create_dir_all(repository.ledger().parent().expect("it lies in a folder")).expect("it can be made");
    std::fs::write(repository.ledger(), (0..200).map(old).collect::<String>()).expect("it can be written");
    check_says(&repository.pass("60"), &["Noted as passed"]);
    assert_eq!(repository.lines(), 200);
    let ledger = std::fs::read_to_string(repository.ledger()).expect("there is a ledger");
    assert!(ledger.starts_with(&old(1)) && ledger.contains(&repository.git(&["rev-parse", "HEAD"])));
}
