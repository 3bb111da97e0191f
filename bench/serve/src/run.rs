//! A run: which requests are sent when, and the note of what became of each. Everything happens on the thread that
//! polls it.

use crate::alarm;
use crate::answer::Answer;
use crate::client::Client;
use crate::clock::{Clock, processor_time};
use crate::dialect::{self, Found};
use crate::error::BenchError;
use crate::live::Live;
use crate::record::{Failure, Record};
use crate::report::{Outcome, Report};
use crate::request::{self, History};
use crate::settings::{Arrivals, Settings};
use crate::workload::{self, Conversation, Turn, Workload};
use crate::{GAPS_MAX, IN_FLIGHT_MAX};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// Requests that warm the server up at once, at most.
const WARM_UP_AT_ONCE: u32 = 8;
/// How long before it is due a request is made ready: longer than the longest prompt takes.
const LEAD_US: u64 = 50_000;
/// Conversations of a rate or a trace that were begun and have not ended, those that wait included. At this bound
/// the next ones are begun late, and their lateness is reported.
const BEGUN_MAX: usize = 50_000;
/// How long a user of the closed loop waits after a failure: a server that refuses at once is not hammered.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// A run against a server that answers.
pub struct Run {
    inner: Rc<Inner>,
}

struct Inner {
    settings: Settings,
    client: Client,
    found: Found,
    phase: watch::Sender<Phase>,
    clock: Cell<Clock>,
    live: RefCell<Live>,
    records: RefCell<Vec<Record>>,
    /// Gaps in all records.
    gaps: Cell<usize>,
    /// Turns that were not sent because the one before failed.
    unsent: Cell<u64>,
    stopped: RefCell<Option<String>>,
    /// A permit per request that may be in flight.
    slots: Semaphore,
}

/// How far a run is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Sending,
    /// Nothing more is sent; what is in flight is awaited.
    Stopping,
    /// What is in flight is given up.
    Abandoning,
}

/// When a turn should be sent.
#[derive(Clone, Copy)]
enum Due {
    /// As soon as it is ready.
    Now,
    /// So many microseconds after the run began.
    At(u64),
}

impl Run {
    /// Checks the settings, reaches the server and finds out what it understands. Errors: see [`BenchError`].
    pub async fn prepare(settings: Settings) -> Result<Self, BenchError> {
        settings.check()?;
        let client = Client::new(&settings.url, &settings.headers, settings.ca.as_deref())?;
        let found = dialect::find(&client, &settings).await?;
        let slots = match settings.arrivals {
            Arrivals::Closed { .. } => IN_FLIGHT_MAX,
            Arrivals::Rate { concurrency_max, .. } | Arrivals::Trace { concurrency_max, .. } => concurrency_max,
        };
        let inner = Inner {
            settings,
            client,
            found,
            phase: watch::Sender::new(Phase::Sending),
            clock: Cell::new(Clock::begin()),
            live: RefCell::default(),
            records: RefCell::default(),
            gaps: Cell::new(0),
            unsent: Cell::new(0),
            stopped: RefCell::new(None),
            slots: Semaphore::new(slots as usize),
        };
        Ok(Self { inner: Rc::new(inner) })
    }

    /// Returns the model that is used.
    pub fn model(&self) -> &str {
        &self.inner.found.model
    }

    /// Returns the counts so far.
    pub fn live(&self) -> Live {
        let mut live = self.inner.live.borrow().clone();
        live.elapsed_s = self.inner.clock.get().now_us() as f64 / 1e6;
        live
    }

    /// Sends nothing more; called again, it gives up what is in flight, too. `why` is what the report says.
    pub fn stop(&self, why: &str) {
        self.inner.stop(why);
    }

    /// Sends everything and returns what came of it, with the records in the order in which requests ended. To be
    /// called once, on a runtime of one thread.
    pub async fn measure(&self) -> (Report, Vec<Record>) {
        LocalSet::new().run_until(self.inner.clone().measure()).await
    }
}

impl Inner {
    async fn measure(self: Rc<Self>) -> (Report, Vec<Record>) {
        let mut notes = self.found.notes.clone();
        if self.settings.warmup > 0 {
            notes.extend(self.clone().warm_up().await);
        }
        let work = Workload::new(&self.settings);
        *self.live.borrow_mut() = Live::new(false, Workload::requests(&self.settings));
        let before = processor_time();
        self.clock.set(Clock::begin());
        if let Some(duration) = self.settings.duration {
            let run = self.clone();
            let last = async move {
                sleep(duration).await;
                run.pass(Phase::Stopping);
            };
            tokio::task::spawn_local(last);
        }
        match self.settings.arrivals {
            Arrivals::Closed { concurrency } => self.clone().users(concurrency, work).await,
            _ => self.clone().dispatch(work).await,
        }
        match self.client.resent() {
            0 => {}
            resent => notes.push(format!(
                "requests sent again: {resent}; the server had closed a kept connection without an answer"
            )),
        }
        let outcome = Outcome {
            elapsed: Duration::from_micros(self.clock.get().now_us()),
            processor: processor_time() - before,
            unsent: self.unsent.get(),
            stopped: self.stopped.borrow().clone(),
            notes,
        };
        let records = self.records.take();
        (Report::new(&self.settings, &self.found, outcome, &records), records)
    }

    /// Sends the requests that are not counted; says how many failed, if some did.
    async fn warm_up(self: Rc<Self>) -> Option<String> {
        let count = self.settings.warmup;
        *self.live.borrow_mut() = Live::new(true, Some(count));
        let settings = self.settings.clone();
        let work = (0..count).map(move |index| workload::warm_up(&settings, index));
        let at_once = match self.settings.arrivals {
            Arrivals::Closed { concurrency } => concurrency.min(WARM_UP_AT_ONCE),
            _ => WARM_UP_AT_ONCE,
        };
        self.clone().users(at_once, work).await;
        self.gaps.set(0);
        self.unsent.set(0);
        let failed = self.records.take().iter().filter(|record| record.failure.is_some()).count();
        (failed > 0).then(|| format!("{failed} of {count} requests to warm up failed"))
    }

    /// Runs the closed loop.
    async fn users(self: Rc<Self>, count: u32, work: impl Iterator<Item = Conversation> + 'static) {
        let work = Rc::new(RefCell::new(work));
        let mut users = JoinSet::new();
        for _ in 0..count {
            let (run, work) = (self.clone(), work.clone());
            users.spawn_local(async move {
                while run.sending() {
                    let Some(conversation) = work.borrow_mut().next() else { return };
                    if !run.converse(conversation, Due::Now).await && run.sending() {
                        sleep(FAILURE_PAUSE).await;
                    }
                }
            });
        }
        while users.join_next().await.is_some() {}
    }

    /// Begins conversations when they are due, whatever became of those before.
    async fn dispatch(self: Rc<Self>, work: Workload) {
        let mut begun = JoinSet::new();
        for conversation in work {
            let due_us = conversation.due_us;
            if !self.sleep_until(due_us.saturating_sub(LEAD_US)).await {
                break;
            }
            while begun.len() >= BEGUN_MAX {
                begun.join_next().await;
            }
            while begun.try_join_next().is_some() {}
            let run = self.clone();
            begun.spawn_local(async move { run.converse(conversation, Due::At(due_us)).await });
        }
        while begun.join_next().await.is_some() {}
    }

    /// Sends the turns of a conversation one after the other; whether all succeeded. One that fails is its last.
    async fn converse(&self, conversation: Conversation, mut due: Due) -> bool {
        let mut history = History::default();
        let turns = conversation.turns.len();
        for (number, turn) in conversation.turns.iter().enumerate() {
            let prompt = history.ask(&self.settings, self.found.medium, turn);
            let body =
                request::body(&self.settings, &self.found.model, self.found.dialect, &prompt, turn.output_tokens);
            drop(prompt);
            let mut record = Record {
                conversation: conversation.index,
                turn: number as u32,
                input_asked: turn.input_tokens(),
                output_asked: turn.output_tokens,
                ..Record::default()
            };
            let goes_on = number + 1 < turns;
            if !self.due(due, &mut record).await {
                return false;
            }
            let answer = self.request(&mut record, body, goes_on).await;
            let (failed, end_us) = (record.failure.is_some(), record.end_us);
            self.note(record, turn);
            if failed {
                self.unsent.set(self.unsent.get() + (turns - number - 1) as u64);
                return false;
            }
            if let Some(next) = conversation.turns.get(number + 1) {
                history.answer(answer.text.unwrap_or_default());
                due = Due::At(end_us + next.think.as_micros() as u64);
            }
        }
        true
    }

    /// Waits until a request is due and may be in flight; false where the run stops first.
    async fn due(&self, due: Due, record: &mut Record) -> bool {
        if let Due::At(due_us) = due
            && !self.sleep_until(due_us).await
        {
            return false;
        }
        record.ready_us = self.clock.get().now_us();
        record.due_us = match due {
            Due::Now => record.ready_us,
            Due::At(due_us) => due_us,
        };
        self.sending()
    }

    /// Sends a request and reads its answer; `keep`: its text, too.
    async fn request(&self, record: &mut Record, body: bytes::Bytes, keep: bool) -> Answer {
        let clock = self.clock.get();
        let mut answer = Answer::new(keep);
        let permit = tokio::select! {
            permit = self.slots.acquire() => permit.ok(),
            () = self.reached(Phase::Stopping) => None,
        };
        record.sent_us = clock.now_us();
        record.end_us = record.sent_us;
        if permit.is_none() {
            record.failure = Some(Failure::Abandoned);
            return answer;
        }
        self.live.borrow_mut().in_flight += 1;
        let count = |_| self.live.borrow_mut().events += 1;
        let fetch = answer.fetch(&self.client, &clock, self.settings.api.path(), body, count);
        let outcome = tokio::select! {
            outcome = timeout(self.settings.timeout, fetch) => outcome.unwrap_or(Err(Failure::Timeout)),
            () = self.reached(Phase::Abandoning) => Err(Failure::Abandoned),
        };
        record.end_us = clock.now_us();
        record.failure = outcome.err();
        record.first_us = answer.first_us;
        record.gaps_us = std::mem::take(&mut answer.gaps_us);
        if let Some(usage) = answer.usage {
            record.input_tokens = Some(usage.prompt_tokens);
            record.output_tokens = Some(usage.completion_tokens);
            record.cached_tokens = usage.cached_tokens();
        }
        let mut live = self.live.borrow_mut();
        live.in_flight -= 1;
        answer
    }

    /// Notes what became of a request.
    fn note(&self, mut record: Record, turn: &Turn) {
        let got = record.output_tokens.filter(|_| self.found.dialect.ignore_eos && record.failure.is_none());
        if let Some(got) = got.filter(|&got| got != u64::from(turn.output_tokens)) {
            record.failure = Some(Failure::WrongLength { asked: turn.output_tokens, got });
        }
        let mut live = self.live.borrow_mut();
        match &record.failure {
            None => live.done += 1,
            Some(Failure::Abandoned) => {}
            Some(_) => live.failed += 1,
        }
        if let Some(ttft_ms) = record.ttft_ms() {
            live.first_token(ttft_ms);
        }
        drop(live);
        self.gaps.set(self.gaps.get() + record.gaps_us.len());
        if self.gaps.get() > GAPS_MAX && self.sending() {
            self.stop(&format!("{GAPS_MAX} gaps between tokens were noted, which is the most"));
        }
        self.records.borrow_mut().push(record);
    }

    fn stop(&self, why: &str) {
        self.stopped.borrow_mut().get_or_insert_with(|| why.to_owned());
        self.pass(if self.sending() { Phase::Stopping } else { Phase::Abandoning });
    }

    fn pass(&self, phase: Phase) {
        self.phase.send_if_modified(|now| std::mem::replace(now, phase.max(*now)) < phase);
    }

    fn sending(&self) -> bool {
        *self.phase.borrow() == Phase::Sending
    }

    async fn reached(&self, phase: Phase) {
        // The sender lives as long as the run.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Sleeps until so many microseconds after the run began; false where the run stops first.
    async fn sleep_until(&self, us: u64) -> bool {
        tokio::select! {
            () = alarm::at(self.clock.get().at(us)) => true,
            () = self.reached(Phase::Stopping) => false,
        }
    }
}
