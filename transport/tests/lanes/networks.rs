//! Two hosts with two cables between them, as network namespaces: one cable is slowed to a tenth, or cut, and
//! heals. Needs root, and the programs `ip` and `tc`.

use crate::ends::*;
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, WorkerId};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use transport::{AgentConfig, AgentEvent, Hub, Lane, ListenConfig, TransferError};

const LEN: usize = 4 << 20;
/// What passes a cable that is well, and one that is not.
const WELL: &str = "800mbit";
const ILL: &str = "80mbit";
/// Bytes that pass an ill cable in a second.
const ILL_SECOND: u64 = 80_000_000 / 8;
/// How long what must happen may take.
const AT_MOST: Duration = Duration::from_secs(60);

/// Who has what the owner should have.
const TWIN: WorkerId = WorkerId(9);

/// The namespaces; gone when dropped.
struct Hosts([String; 2]);

impl Hosts {
    /// Errors: why there can be none here.
    fn new() -> Result<Self, String> {
        let hosts = Self(["owner", "reader"].map(|host| format!("rails-{host}-{}", std::process::id())));
        let [owner, reader] = &hosts.0;
        run("ip", &["netns", "add", owner])?;
        run("ip", &["netns", "add", reader])?;
        for cable in 0..2 {
            let name = format!("cable{cable}");
            let peer = ["type", "veth", "peer", "name", &name, "netns", reader];
            run("ip", &[&["-n", owner, "link", "add", &name][..], &peer].concat())?;
            for (at, host) in hosts.0.iter().enumerate() {
                run("ip", &["-n", host, "address", "add", &format!("{}/24", address(cable, at)), "dev", &name])?;
                run("ip", &["-n", host, "link", "set", &name, "up"])?;
            }
            hosts.pass(cable, WELL)?;
        }
        // What an agent listens on unless it is told otherwise.
        hosts.0.iter().try_for_each(|host| run("ip", &["-n", host, "link", "set", "lo", "up"]))?;
        Ok(hosts)
    }

    /// So many bits a second pass a cable, from the owner to the reader.
    fn pass(&self, cable: usize, rate: &str) -> Result<(), String> {
        let limit =
            ["-n", &self.0[0], "qdisc", "replace", "dev", &format!("cable{cable}"), "root", "tbf", "rate", rate];
        run("tc", &[&limit[..], &["burst", "256kb", "latency", "50ms"]].concat())
    }

    /// Cuts a cable, or joins its ends.
    fn cut(&self, cable: usize, up_or_down: &str) {
        run("ip", &["-n", &self.0[0], "link", "set", &format!("cable{cable}"), up_or_down]).expect("cables can be cut");
    }

    /// Bytes that came out of a cable at the reader, as its kernel counts them.
    fn passed(&self, cable: usize) -> u64 {
        let count = format!("/sys/class/net/cable{cable}/statistics/rx_bytes");
        let output = Command::new("ip").args(["netns", "exec", &self.0[1], "cat", &count]).output();
        let output = output.expect("`ip` was there before").stdout;
        String::from_utf8_lossy(&output).trim().parse().expect("a number")
    }

    /// Starts this program as `what` on a host; its output.
    fn start(&self, host: usize, what: &str) -> (Child, BufReader<ChildStdout>) {
        let program = std::env::current_exe().expect("a test has a program");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[host]]).arg(program);
        command.args(["--exact", "networks::a_host", "--nocapture"]).env(HOST_PROCESS, what);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        (child, output)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            // One that could not be made is not there.
            let _ = run("ip", &["netns", "del", host]);
        }
    }
}

fn address(cable: usize, host: usize) -> String {
    format!("10.21{cable}.0.{}", host + 1)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = || format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(()) } else { Err(said()) }
}

/// Set for the processes of the hosts: what they are.
const HOST_PROCESS: &str = "TRANSPORT_TEST_HOST";

/// Not a test of its own: what the processes of the test below do.
#[test]
fn a_host() {
    #[expect(clippy::disallowed_methods, reason = "the test says by it which process this is")]
    let Ok(what) = std::env::var(HOST_PROCESS) else { return };
    match what.split(' ').collect::<Vec<_>>()[..] {
        ["owner", bind] => own(bind),
        ["reader", process, tcp] => read(process.parse().expect("a number"), tcp),
        _ => panic!("what is {what:?}"),
    }
}

fn own(bind: &str) {
    let owner = end(&Hub::new(), OWNER, 1, LEN, |config: &mut AgentConfig| {
        config.listen = Some(ListenConfig { bind: bind.to_owned(), advertise: String::new() });
    });
    owner.fill();
    let address = owner.agent.address();
    println!("\naddress {} {}", address.process, address.tcp);
    // The end of the input, or a kill, ends the process.
    std::io::stdin().lines().for_each(drop);
}

/// Reads until its input ends, and says how its rails are whenever that changes.
fn read(process: u64, tcp: &str) {
    let only = |config: &mut AgentConfig| config.lanes = vec![Lane::Tcp];
    let (reader, twin) = (end(&Hub::new(), READER, 1, LEN, only), end(&Hub::new(), TWIN, 1, LEN, only));
    twin.fill();
    let expected = twin.bytes();
    let address = PeerAddress { process, unix: String::new(), tcp: tcp.to_owned() };
    let (incarnation, name) = (Incarnation(1), "the owner".to_owned());
    reader.agent.introduce(PeerInfo { id: OWNER, incarnation, name, role: Role::Prefill, address });
    reader.connect(OWNER);
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ends.store(true, Ordering::SeqCst);
    });
    let mut said = String::new();
    while !over.load(Ordering::SeqCst) {
        let counts = reader.agent.counts();
        let rails = counts.rails.iter().find(|(lane, _)| *lane == Lane::Tcp).map(|(_, rails)| *rails);
        let faults: Vec<_> =
            counts.rails_put_aside.iter().map(|(why, count)| format!("{} {count}", why.name())).collect();
        let rails = rails.unwrap_or_default();
        let now =
            format!("up {} aside {} {} returned {}", rails.up, rails.aside, faults.join(" "), counts.rails_returned);
        if now != said {
            println!("\nrails {now}");
            said = now;
        }
        reader.post(OWNER, vec![batch(LEN, 0, &[(0, 0)])]);
        let mut is_lost = false;
        let result = loop {
            match reader.event() {
                AgentEvent::Ended(completion) => break completion.result,
                AgentEvent::Lost { .. } => is_lost = true,
                other => panic!("unexpected {other:?}"),
            }
        };
        match result {
            Ok(_) => assert!(reader.bytes() == expected, "a byte is wrong"),
            Err(TransferError::PeerGone) if is_lost => {}
            Err(TransferError::PeerGone) => is_lost = !reader.lost(OWNER).is_empty(),
            Err(other) => panic!("{other}"),
        }
        reader.wipe();
        if is_lost {
            println!("\nrails gone");
            said.clear();
            reader.agent.connect(OWNER);
            while !matches!(reader.event(), AgentEvent::Connected { .. }) {
                reader.agent.connect(OWNER);
            }
        }
    }
    println!("\nrails over");
}

/// The reader's process, and how it is.
struct Reading {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Reading {
    fn new((child, output): (Child, BufReader<ChildStdout>)) -> Self {
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.filter(|line| line.starts_with("rails ")).for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines }
    }

    /// Waits until it says so. How long that took.
    #[expect(clippy::disallowed_methods, reason = "it is told how long it takes, which decides nothing")]
    fn says(&self, expect: &str) -> Duration {
        let begin = Instant::now();
        let mut last = String::new();
        while let Ok(line) = self.lines.recv_timeout(AT_MOST) {
            if line.contains(expect) {
                return begin.elapsed();
            }
            last = line;
        }
        panic!("{expect:?} is awaited, and last it said {last:?}");
    }
}

/// An owner and a reader on hosts of their own.
struct Pulling {
    owner: Child,
    reader: Reading,
}

impl Pulling {
    fn start(hosts: &Hosts) -> Self {
        let (owner, output) = hosts.start(0, &format!("owner {}:0,{}:0", address(0, 0), address(1, 0)));
        let mut lines = output.lines().map_while(Result::ok);
        let line =
            lines.find_map(|line| line.strip_prefix("address ").map(str::to_owned)).expect("it says where it is");
        let reader = Reading::new(hosts.start(1, &format!("reader {line}")));
        reader.says("up 2 aside 0");
        Self { owner, reader }
    }

    fn end(mut self) {
        drop(self.reader.child.stdin.take());
        self.reader.says("over");
        assert!(self.reader.child.wait().expect("it ends").success());
        self.owner.kill().expect("it runs");
        self.owner.wait().expect("it ends");
    }
}

#[test]
fn a_slow_cable_of_two_is_put_aside_and_taken_back_when_it_heals() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => return println!("skipped: no hosts can be made, which takes root, `ip` and `tc`: {reason}"),
    };
    let pulling = Pulling::start(&hosts);
    let reader = &pulling.reader;
    // A while that is well is followed by nothing.
    assert!(reader.lines.recv_timeout(Duration::from_secs(2)).is_err());
    hosts.pass(1, ILL).expect("cables can be slow");
    let before = hosts.passed(1);
    let took = reader.says("up 1 aside 1 failed 0 slow 1");
    let passed = hosts.passed(1) - before;
    println!("put aside after {took:?} and {passed} bytes");
    // It is found within a second, told by what the cable passed: a machine that is busy, or stands still, passes
    // less in its time.
    assert!(passed < ILL_SECOND, "{passed} bytes were read over a slow cable");
    hosts.pass(1, WELL).expect("cables can heal");
    println!("taken back after {:?}", reader.says("up 2 aside 0"));
    pulling.end();
}

/// Messages have one way: what is read then ends, and the peer is reached by its other address.
#[test]
fn a_peer_is_reached_by_its_other_cable_when_the_one_of_messages_is_cut() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => return println!("skipped: no hosts can be made, which takes root, `ip` and `tc`: {reason}"),
    };
    let pulling = Pulling::start(&hosts);
    hosts.cut(0, "down");
    println!("lost after {:?}", pulling.reader.says("gone"));
    println!("reached again after {:?}", pulling.reader.says("up 1"));
    hosts.cut(0, "up");
    println!("both ways again after {:?}", pulling.reader.says("up 2 aside 0"));
    pulling.end();
}
