//! Random clusters: workers that compute, fail, vanish and come back, messages that come late, again and out of order,
//! clients that leave. The workers are honest models of the real ones; the client checks what it gets.

use super::support::{D1, D2, P1, P2, STOP, chain, config, key, links, request, row};
use crate::journey::Journey;
use crate::{Closing, Command, Event, HandoffPolicy, Placement, PlacementConfig, Usage};
use domain::session::{Assignment, Failure, FromWorker, Report, Role, Submit, ToWorker};
use domain::{Choice, End, Ender, Epoch, Finish, Incarnation, Request, RequestId, Time, Token, WorkerId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const WORKERS: [WorkerId; 4] = [P1, P2, D1, D2];
const FAILURES: [Failure; 7] = [
    Failure::Engine,
    Failure::HandoffLapsed,
    Failure::HandoffTimeout,
    Failure::QueueFull,
    Failure::Draining,
    Failure::TooLarge,
    Failure::Invalid,
];

#[derive(Clone, Debug)]
enum Act {
    Arrive {
        prompt: u32,
        choices: u16,
        max_tokens: u32,
    },
    /// A worker takes a step of one of its tasks.
    Work {
        worker: usize,
        task: usize,
    },
    /// One of a worker's messages arrives; `again`: and will once more.
    Deliver {
        worker: usize,
        at: usize,
        again: bool,
    },
    Fail {
        worker: usize,
        task: usize,
        why: usize,
    },
    Down {
        worker: usize,
    },
    Up {
        worker: usize,
    },
    Gone {
        request: usize,
    },
    Stop {
        request: usize,
        choice: u16,
    },
    Pass {
        ms: u64,
    },
    Report {
        worker: usize,
        skip: u64,
        blocks: u32,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (worker, any) = (0..WORKERS.len(), 0usize..100);
    let act = prop_oneof![
        4 => (1u32..120, 1u16..4, 1u32..7)
            .prop_map(|(prompt, choices, max_tokens)| Act::Arrive { prompt, choices, max_tokens }),
        12 => (worker.clone(), any.clone()).prop_map(|(worker, task)| Act::Work { worker, task }),
        16 => (worker.clone(), any.clone(), prop::bool::weighted(0.1))
            .prop_map(|(worker, at, again)| Act::Deliver { worker, at, again }),
        2 => (worker.clone(), any.clone(), 0..FAILURES.len())
            .prop_map(|(worker, task, why)| Act::Fail { worker, task, why }),
        1 => worker.clone().prop_map(|worker| Act::Down { worker }),
        2 => worker.clone().prop_map(|worker| Act::Up { worker }),
        1 => any.clone().prop_map(|request| Act::Gone { request }),
        1 => (any, 0u16..4).prop_map(|(request, choice)| Act::Stop { request, choice }),
        1 => (0u64..3_000).prop_map(|ms| Act::Pass { ms }),
        2 => (worker, 1u64..3, 0u32..8).prop_map(|(worker, skip, blocks)| Act::Report { worker, skip, blocks }),
    ];
    prop::collection::vec(act, 1..250)
}

/// Returns the whole answer of a choice: a function of the request, as seeded sampling makes it.
fn answer(request: &Request, choice: u16) -> Vec<Token> {
    let mix = request.id.0 * 31 + u64::from(choice) * 7;
    let length = 1 + mix as u32 % (request.params.max_tokens + 2);
    let token = |index: u32| if index + 1 == length { STOP } else { (mix as u32 * 13 + index * 5) % STOP };
    (0..length.min(request.params.max_tokens)).map(token).collect()
}

/// An attempt as a worker sees it.
struct Task {
    submit: Submit,
    /// Tokens of the choices that it still makes; a decode worker's first is the second of the attempt.
    next: BTreeMap<Choice, usize>,
    /// It goes on elsewhere after its next token: who takes over, and under which epoch.
    hand_over: Option<(WorkerId, Epoch)>,
    /// It takes over, and was not handed anything yet.
    waits: bool,
}

#[derive(Default)]
struct Worker {
    up: bool,
    life: u64,
    reports: u64,
    /// Submits that came over its session.
    submits: u64,
    tasks: BTreeMap<(RequestId, Epoch), Task>,
    outbox: Vec<FromWorker>,
}

struct Client {
    request: Arc<Request>,
    got: Vec<Vec<Token>>,
    ends: Vec<Option<End>>,
    /// Choices that a stop string ended.
    stopped: BTreeSet<u16>,
    epoch: u32,
    attempts: u32,
    over: bool,
}

struct Cluster {
    placement: Placement,
    config: PlacementConfig,
    now: Time,
    workers: BTreeMap<WorkerId, Worker>,
    clients: Vec<Client>,
    /// Attempts whose prompt is computed: their decode worker can go on.
    complete: BTreeSet<(RequestId, Epoch)>,
}

impl Cluster {
    fn new(handoff: HandoffPolicy) -> Self {
        let config = PlacementConfig { handoff, requests_max: 5, index_blocks_max: 20, ..config() };
        let mut cluster = Self {
            placement: Placement::new(config.clone()),
            config,
            now: Time::ZERO,
            workers: WORKERS.iter().map(|&id| (id, Worker::default())).collect(),
            clients: Vec::new(),
            complete: BTreeSet::new(),
        };
        WORKERS.iter().for_each(|&id| cluster.up(id));
        cluster
    }

    fn worker(&mut self, id: WorkerId) -> &mut Worker {
        self.workers.get_mut(&id).unwrap()
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.placement.handle(self.now, event, &mut out);
        out.into_iter().for_each(|command| self.obey(command));
        self.check();
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Arrive { prompt, choices, max_tokens } => {
                let request = request(self.clients.len() as u64, prompt, choices, max_tokens);
                let count = usize::from(choices);
                self.clients.push(Client {
                    request: Arc::clone(&request),
                    got: vec![Vec::new(); count],
                    ends: vec![None; count],
                    stopped: BTreeSet::new(),
                    epoch: 0,
                    attempts: 0,
                    over: false,
                });
                self.event(Event::Arrive { chain: chain(prompt as u8 % 3, prompt), request });
            }
            Act::Work { worker, task } => {
                let id = WORKERS[worker];
                if let Some(key) = pick(self.worker(id).tasks.keys(), task) {
                    self.work(id, key);
                }
            }
            Act::Deliver { worker, at, again } => self.deliver(WORKERS[worker], at, again),
            Act::Fail { worker, task, why } => {
                let worker = self.worker(WORKERS[worker]);
                if let Some((request, epoch)) = pick(worker.tasks.keys(), task) {
                    worker.tasks.remove(&(request, epoch));
                    let (why, detail) = (FAILURES[why], "bad".into());
                    worker.outbox.push(FromWorker::Failed { request, epoch, why, fault: None, detail });
                }
            }
            Act::Down { worker } => {
                let id = WORKERS[worker];
                let life = self.worker(id).life;
                *self.worker(id) = Worker { life, ..Worker::default() };
                self.event(Event::WorkerDown { id });
            }
            Act::Up { worker } => self.up(WORKERS[worker]),
            Act::Gone { request } => {
                if let Some(number) = pick_number(self.clients.len(), request) {
                    self.event(Event::Gone { request: RequestId(number as u64) });
                    assert!(self.clients[number].over);
                }
            }
            Act::Stop { request, choice } => {
                if let Some(number) = pick_number(self.clients.len(), request) {
                    let client = &mut self.clients[number];
                    if client.ends.get(usize::from(choice)).is_some_and(Option::is_none) {
                        client.stopped.insert(choice);
                    }
                    self.event(Event::StopChoice { request: RequestId(number as u64), choice: Choice(choice) });
                }
            }
            Act::Pass { ms } => {
                self.now = self.now + Duration::from_millis(ms);
                self.event(Event::Tick);
                assert!(self.placement.next_deadline().is_none_or(|deadline| deadline > self.now));
            }
            Act::Report { worker, skip, blocks } => {
                let worker = self.worker(WORKERS[worker]);
                if worker.up {
                    worker.reports += skip;
                    let (chain, other) = (chain(skip as u8, blocks * 16), chain(skip as u8 + 1, blocks * 8));
                    let added = links(&chain, 0..chain.len());
                    // Some of it left the device.
                    let (host, disk) = (links(&chain, chain.len() / 2..chain.len()), links(&other, 0..other.len()));
                    let report = Report { added, host, disk, running: blocks, ..report(worker, false) };
                    worker.outbox.push(FromWorker::Report(report));
                }
            }
        }
    }

    /// A session begins; of a worker that is up already, without its end having been seen.
    fn up(&mut self, id: WorkerId) {
        let worker = self.worker(id);
        *worker = Worker { up: true, life: worker.life + 1, ..Worker::default() };
        let incarnation = Incarnation(worker.life);
        let role = if id.0 < 10 { Role::Prefill } else { Role::Decode };
        // Those that are there for long sequences come and go as the others do.
        let context_tokens = if id == P2 || id == D2 { 120 } else { 64 };
        self.event(Event::WorkerUp { peer: super::support::peer(id, role, incarnation), context_tokens });
    }

    fn deliver(&mut self, id: WorkerId, at: usize, again: bool) {
        let worker = self.worker(id);
        if let Some(at) = pick_number(worker.outbox.len(), at) {
            let message = if again { worker.outbox[at].clone() } else { worker.outbox.remove(at) };
            self.event(Event::Worker { id, message });
        }
    }

    /// One step of one task.
    fn work(&mut self, id: WorkerId, at: (RequestId, Epoch)) {
        let complete = self.complete.contains(&at);
        let assignment = self.workers[&id].tasks[&at].submit.assignment;
        let waits = self.workers[&id].tasks[&at].waits;
        let source = match assignment {
            Assignment::Decode { prefill } if !complete => Some((prefill, at)),
            Assignment::TakeOver { from } if waits => Some((from, (at.0, Epoch(at.1.0 - 1)))),
            _ => None,
        };
        if let Some((from, their)) = source {
            if !self.workers[&from].tasks.contains_key(&their) {
                let worker = self.worker(id);
                worker.tasks.remove(&at);
                let (why, detail) = (Failure::HandoffTimeout, "no offer".into());
                let fault = Some(from);
                worker.outbox.push(FromWorker::Failed { request: at.0, epoch: at.1, why, fault, detail });
            }
            return;
        }
        let request = Arc::clone(&self.clients[at.0.0 as usize].request);
        let worker = self.workers.get_mut(&id).unwrap();
        let task = worker.tasks.get_mut(&at).unwrap();
        let (mut rows, mut ended) = (Vec::new(), Vec::new());
        task.next.retain(|&choice, index| {
            let answer = answer(&request, choice.0);
            if let Some(&token) = answer.get(*index) {
                rows.push(row(at.0.0, at.1.0, choice.0, *index as u32, token));
            }
            *index += 1;
            let last = *index == answer.len();
            if last {
                let end = if answer.last() == Some(&STOP) { End::stop() } else { End::length() };
                ended.push(FromWorker::Ended { key: key(at.0.0, at.1.0, choice.0), tokens: *index as u32, end });
            }
            // A choice that its first token ended does not come to the decode worker.
            *index < answer.len()
        });
        let done = task.next.is_empty() || matches!(assignment, Assignment::Prefill { .. }) || task.hand_over.is_some();
        if done && let Some(Task { next, hand_over: Some((to, epoch)), .. }) = worker.tasks.remove(&at) {
            let taker = self.workers.get_mut(&to).and_then(|taker| taker.tasks.get_mut(&(at.0, epoch)));
            if let Some(taker) = taker.filter(|_| !next.is_empty()) {
                (taker.next, taker.waits) = (next, false);
            }
        }
        let worker = self.workers.get_mut(&id).unwrap();
        worker.outbox.push(FromWorker::Tokens(rows));
        worker.outbox.append(&mut ended);
        if matches!(assignment, Assignment::Prefill { .. }) {
            self.complete.insert(at);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send { worker, message } => {
                assert!(self.workers[&worker].up, "sent to a worker that is down: {message:?}");
                match message {
                    ToWorker::Submit(submit) => {
                        self.worker(worker).submits += 1;
                        self.submit(worker, submit);
                    }
                    ToWorker::Cancel { request, epoch, choice: None } => {
                        self.worker(worker).tasks.remove(&(request, epoch));
                    }
                    ToWorker::Cancel { request, epoch, choice: Some(choice) } => {
                        if let Some(task) = self.worker(worker).tasks.get_mut(&(request, epoch)) {
                            task.next.remove(&choice);
                        }
                    }
                    ToWorker::Snapshot => {
                        let worker = self.worker(worker);
                        worker.reports += 1;
                        worker.outbox.push(FromWorker::Report(report(worker, true)));
                    }
                    ToWorker::Peer(peer) => assert_ne!(peer.id, worker, "a worker is introduced to itself"),
                    ToWorker::PeerLeft { id, incarnation } => {
                        let other = &self.workers[&id];
                        assert!(!other.up || Incarnation(other.life) > incarnation, "{id} is there");
                    }
                    ToWorker::Heartbeat => {}
                    ToWorker::Migrate(migrate) => {
                        let task = self.worker(worker).tasks.get_mut(&(migrate.request, migrate.epoch));
                        if let Some(task) = task {
                            task.hand_over = Some((migrate.to, migrate.next));
                        }
                    }
                    ToWorker::OperatorAsk { .. }
                    | ToWorker::Hello(_)
                    | ToWorker::Proof(_)
                    | ToWorker::Refused { .. } => {
                        panic!("unexpected {message:?}")
                    }
                }
            }
            Command::Close { worker, why } => {
                assert_eq!(why, Closing::Drained, "{worker} says enough");
                let life = self.worker(worker).life;
                *self.worker(worker) = Worker { life, ..Worker::default() };
            }
            Command::Token { request, choice, row } => {
                let client = self.open_client(request);
                let got = &mut client.got[usize::from(choice.0)];
                assert_eq!((row.key.request, row.key.choice), (request, choice));
                assert_eq!(row.index as usize, got.len(), "a token is missing or comes again");
                assert_eq!(client.ends[usize::from(choice.0)], None, "a token after the end");
                got.push(row.token);
                assert_eq!(row.token, answer(&client.request, choice.0)[got.len() - 1], "a wrong token");
            }
            Command::ChoiceEnd { request, choice, end } => {
                let before = self.open_client(request).ends[usize::from(choice.0)].replace(end);
                assert_eq!(before, None, "a choice ended twice");
            }
            Command::End { request, end, usage } => {
                self.end(request, &end, usage);
            }
            Command::Reject { request, .. } => {
                let client = self.open_client(request);
                assert!(client.got.iter().all(Vec::is_empty), "rejected after a token");
                client.over = true;
            }
        }
    }

    fn submit(&mut self, id: WorkerId, submit: Submit) {
        let attempts_max = self.config.attempts_max;
        let client = self.open_client(submit.request);
        let is_second_submit =
            submit.epoch.0 == client.epoch && matches!(submit.assignment, Assignment::Prefill { .. });
        assert!(is_second_submit || submit.epoch.0 == client.epoch + 1, "epochs grow by one");
        let waits = matches!(submit.assignment, Assignment::TakeOver { .. });
        client.attempts += u32::from(!is_second_submit && !waits);
        // Each attempt may be refused by every worker once.
        assert!(client.attempts <= attempts_max * (1 + WORKERS.len() as u32) && !submit.deadline.is_zero());
        client.epoch = submit.epoch.0;
        let open = client.ends.iter().enumerate().filter(|(_, end)| end.is_none());
        let expect: Vec<_> =
            open.map(|(number, _)| (Choice(number as u16), client.got[number].as_slice().into())).collect();
        assert_eq!(submit.choices, expect, "an attempt goes on from what the client has");
        let skip = usize::from(matches!(submit.assignment, Assignment::Decode { .. }));
        let request = Arc::clone(&client.request);
        let mut next: BTreeMap<Choice, usize> =
            submit.choices.iter().map(|(choice, tokens)| (*choice, tokens.len() + skip)).collect();
        next.retain(|choice, index| *index < answer(&request, choice.0).len());
        if let Assignment::Prefill { decode: other } | Assignment::Decode { prefill: other } = submit.assignment {
            assert!(self.workers[&other].up);
            let inputs: BTreeSet<_> = submit.choices.iter().map(|(_, tokens)| tokens).collect();
            assert!(inputs.len() == 1, "one offer carries one input");
        }
        if let Some(holder) = submit.holder {
            assert!(matches!(submit.assignment, Assignment::Prefill { .. } | Assignment::Whole) && holder.worker != id);
            let other = &self.workers[&holder.worker];
            assert!(other.up && holder.incarnation == Incarnation(other.life), "{holder:?} is not up");
            let input = request.prompt.len() + submit.choices.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
            assert!(holder.tokens.is_multiple_of(16) && (1..input as u32).contains(&holder.tokens));
        }
        self.worker(id).tasks.insert((submit.request, submit.epoch), Task { submit, next, hand_over: None, waits });
    }

    fn end(&mut self, request: RequestId, end: &End, usage: Usage) {
        let attempts_max = self.config.attempts_max;
        let client = self.open_client(request);
        client.over = true;
        let sent: usize = client.got.iter().map(Vec::len).sum();
        assert_eq!(usage.output_tokens as usize, sent);
        // None, of what ended before it had a worker.
        assert!((client.attempts.min(1)..=attempts_max.min(client.attempts)).contains(&usage.attempts), "{usage:?}");
        if end.finish == Finish::Error {
            assert_ne!(end.by, Ender::Done);
            return;
        }
        assert_eq!(client.ends[0].as_ref(), Some(end));
        for (number, (got, choice_end)) in client.got.iter().zip(&client.ends).enumerate() {
            let choice_end = choice_end.as_ref().expect("the request ended before its choices");
            let whole = answer(&client.request, number as u16);
            if !client.stopped.contains(&(number as u16)) {
                assert_eq!(*got, whole);
                let finish = if whole.last() == Some(&STOP) { Finish::Stop } else { Finish::Length };
                assert_eq!(choice_end.finish, finish);
            }
        }
    }

    fn open_client(&mut self, request: RequestId) -> &mut Client {
        let client = &mut self.clients[request.0 as usize];
        assert!(!client.over, "{request}: something after its end");
        client
    }

    /// What holds after every event.
    fn check(&self) {
        let open = self.clients.iter().filter(|client| !client.over).count();
        assert_eq!(self.placement.open(), open);
        assert!(open <= self.config.requests_max);
        assert!(open == 0 || self.placement.next_deadline().is_some());
        assert!(self.placement.indexed_blocks() <= self.config.index_blocks_max);
        let phases = self.placement.phases();
        assert_eq!(phases.waiting + phases.prefilling + phases.handing_off + phases.decoding, open);
        for id in WORKERS {
            let journeys = || self.placement.journeys.iter();
            let with =
                |journey: &Journey| journey.involved_workers().into_iter().flatten().find(|(worker, _)| *worker == id);
            let has: Vec<_> = journeys().filter(|(_, journey)| with(journey).is_some()).map(|(id, _)| *id).collect();
            assert_eq!(self.placement.requests_by_worker.of(id), has, "what {id} has to do with");
            let needs = journeys().any(|(_, journey)| with(journey).is_some_and(|(_, needed)| needed));
            assert_eq!(self.placement.requests_by_worker.is_needed(id), needs, "whether {id} is needed");
        }
        let stuck = self.placement.journeys.iter().filter_map(|(&id, journey)| Some((journey.stuck?, id)));
        assert_eq!(self.placement.stuck, stuck.collect());
        for worker in self.workers.values() {
            for ((request, epoch), task) in &worker.tasks {
                let client = &self.clients[request.0 as usize];
                let current = epoch.0 + u32::from(task.hand_over.is_some());
                assert!(!client.over && client.epoch == current, "{request}/{epoch} was never cancelled");
            }
        }
    }

    /// A worker says how it stands.
    fn says_how_it_stands(&mut self, id: WorkerId) {
        let worker = self.worker(id);
        worker.reports += 1;
        worker.outbox.push(FromWorker::Report(report(worker, false)));
    }

    /// No more trouble: everything ends without any time passing.
    fn heal(&mut self) {
        for id in WORKERS {
            if !self.workers[&id].up {
                self.up(id);
            }
        }
        for _ in 0..200 {
            for id in WORKERS {
                self.says_how_it_stands(id);
                let tasks: Vec<_> = self.workers[&id].tasks.keys().copied().collect();
                for task in tasks {
                    if self.workers[&id].tasks.contains_key(&task) {
                        self.work(id, task);
                    }
                }
                while !self.workers[&id].outbox.is_empty() {
                    self.deliver(id, 0, false);
                }
            }
            if self.placement.open() == 0 {
                return;
            }
        }
        let left = self.clients.iter().filter(|client| !client.over).map(|client| client.request.id);
        panic!("these never end: {:?}", left.collect::<Vec<_>>());
    }
}

fn report(worker: &Worker, snapshot: bool) -> Report {
    let (incarnation, number) = (Incarnation(worker.life), worker.reports);
    let open = worker.tasks.values().map(|task| task.next.len() as u32).sum();
    // So few run at once that some requests wait for a place.
    Report { incarnation, number, snapshot, submits: worker.submits, running_max: 1, open, ..Report::default() }
}

fn pick<'a, T: Copy + 'a>(mut from: impl ExactSizeIterator<Item = &'a T>, number: usize) -> Option<T> {
    pick_number(from.len(), number).and_then(|at| from.nth(at).copied())
}

fn pick_number(count: usize, number: usize) -> Option<usize> {
    number.checked_rem(count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 4))]

    #[test]
    fn every_request_ends_once_with_its_own_tokens(policy in 0usize..3, acts in acts()) {
        let policy = [HandoffPolicy::Auto, HandoffPolicy::Always, HandoffPolicy::Never][policy];
        let mut cluster = Cluster::new(policy);
        acts.into_iter().for_each(|act| cluster.act(act));
        cluster.heal();
    }
}
