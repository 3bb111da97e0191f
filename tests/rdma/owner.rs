//! The process that is read from: it says where it is, does what its standard input says, and ends with it.

use crate::reader::{LEN, OWNER, byte, config};
use domain::{Incarnation, ProgressWord, StepId};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use transport::{Agent, Hub, SealedMemory};

/// The process' body. Arguments: which life, of which layout its memory is, and which devices it uses.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) {
    let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number");
    let (life, fingerprint) = (number(), number());
    let mut config = config(OWNER, Incarnation(life));
    config.fingerprint = fingerprint;
    config.rdma.devices = arguments.collect();
    let word = ProgressWord::new();
    let agent = Agent::start(&Hub::new(), config, word.clone(), Box::new(|_| true)).expect("an agent starts");
    let memory = SealedMemory::new("owner", LEN).expect("memory");
    for at in 0..LEN {
        // SAFETY: inside the memory, which nobody reads yet.
        unsafe { memory.as_ptr().add(at).write(byte(at)) };
    }
    agent.register(Arc::new(memory));
    let spare = agent.register(Arc::new(SealedMemory::new("spare", LEN).expect("memory")));
    let address = agent.address();
    println!("{} {}", address.process, address.tcp);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["raise", step, layer] => {
                word.raise(StepId(step.parse().expect("a step")), layer.parse().expect("a layer"));
            }
            ["withdraw"] => {
                agent.deregister(spare).expect("nobody of this process reads it");
                println!("withdrawn");
            }
            ["refused"] => println!("{}", agent.counts().refused.iter().map(|(_, count)| count).sum::<u64>()),
            _ => panic!("what is {line:?}"),
        }
        std::io::stdout().flush().expect("it is read");
    }
}

/// A running owner; killed when dropped.
pub(crate) struct Owner {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) process: u64,
    pub(crate) address: String,
}

impl Owner {
    pub(crate) fn start(life: u64, fingerprint: u64) -> Self {
        Self::start_with(life, fingerprint, &[])
    }

    /// One that uses these devices.
    pub(crate) fn start_with(life: u64, fingerprint: u64, devices: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = Command::new(program);
        command.args(["owner", &life.to_string(), &fingerprint.to_string()]).args(devices);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let orders = child.stdin.take().expect("it is piped");
        let mut answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let line = line(&mut answers);
        let (process, address) = line.split_once(' ').expect("a process and an address");
        let (process, address) = (process.parse().expect("a number"), address.to_owned());
        Self { child, orders, answers, process, address }
    }

    /// Its engine has written this.
    pub(crate) fn raise(&mut self, step: u64, layer: u16) {
        writeln!(self.orders, "raise {step} {layer}").expect("it listens");
    }

    /// Its second region, which has no bytes of interest, is registered no more.
    pub(crate) fn withdraw(&mut self) {
        writeln!(self.orders, "withdraw").expect("it listens");
        assert_eq!(line(&mut self.answers), "withdrawn");
    }

    /// Connections that it refused so far.
    pub(crate) fn refused(&mut self) -> u64 {
        writeln!(self.orders, "refused").expect("it listens");
        line(&mut self.answers).parse().expect("a number")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("it says something");
    line.trim_end().to_owned()
}
