//! Workers in one process, and a router that does what the test says.

use crate::device::{Knobs, TagDevice};
use decode_worker::Decode;
use domain::session::{FromWorker, Part, Report, Submit, ToWorker, TokenRow};
use domain::{
    Choice, Dtype, End, Epoch, Incarnation, KvGroup, KvLayout, RequestId, SamplingParams, SeqKey, Token, WorkerId,
};
use prefill_worker::Prefill;
use scheduler::SchedulerConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use transport::Hub;
use worker::{Inbox, Worker, WorkerConfig, WorkerParts, inbox, join};

pub(crate) const PREFILL: WorkerId = WorkerId(0);
pub(crate) const DECODE: WorkerId = WorkerId(1);
pub(crate) const BLOCK: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Options {
    pub(crate) blocks: u32,
    pub(crate) chunk: u32,
    pub(crate) window: Option<u32>,
    pub(crate) running_max: u32,
    pub(crate) reserve: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { blocks: 512, chunk: 32, window: None, running_max: 64, reserve: 4 }
    }
}

pub(crate) struct Cluster {
    pub(crate) layout: KvLayout,
    pub(crate) prefill_knobs: Arc<Knobs>,
    pub(crate) decode_knobs: Arc<Knobs>,
    workers: BTreeMap<WorkerId, Worker>,
    from: Receiver<(WorkerId, FromWorker)>,
    pub(crate) reports: BTreeMap<WorkerId, Report>,
    pub(crate) rows: BTreeMap<SeqKey, Vec<(WorkerId, TokenRow)>>,
    pub(crate) ends: BTreeMap<SeqKey, (u32, End)>,
    pub(crate) failures: Vec<(RequestId, Epoch, domain::session::Failure, String)>,
}

impl Cluster {
    pub(crate) fn new(options: &Options) -> Self {
        // Three layers; with a window, the middle one has it, so that two KV groups are handed off.
        let group = |layers: Vec<u16>, window| KvGroup { layers, kv_heads: 1, head_dim: 2, window };
        let groups = match options.window {
            None => vec![group(vec![0, 1, 2], None)],
            window => vec![group(vec![0, 2], None), group(vec![1], window)],
        };
        let layout = KvLayout { block_tokens: BLOCK, dtype: Dtype::F32, groups };
        let hub = Hub::new();
        let (sender, from) = channel();
        let (prefill_knobs, decode_knobs) = (Arc::<Knobs>::default(), Arc::<Knobs>::default());
        let mut workers = BTreeMap::new();
        let session = |id: WorkerId| {
            let sender = sender.clone();
            Box::new(move |bytes: Vec<u8>| {
                let message = proto::session::decode_from_worker(&bytes).expect("a worker speaks the protocol");
                sender.send((id, message)).is_ok()
            })
        };
        let config = |id: WorkerId| WorkerConfig {
            id,
            incarnation: Incarnation(1),
            name: id.to_string(),
            layout: layout.clone(),
            blocks: vec![options.blocks; layout.groups.len()],
            weights: [7; 32],
            reserve_blocks: options.reserve,
            scheduler: SchedulerConfig {
                step_tokens_max: 256,
                chunk_tokens: options.chunk,
                running_max: options.running_max,
                waiting_max: 1000,
                block_tokens: BLOCK,
                samples_max: 128,
            },
            handoff_wait: Duration::from_secs(10),
            answer_wait: Duration::from_secs(5),
            release_retry: Duration::from_millis(200),
            offer_max: Duration::from_secs(20),
        };
        let device = |knobs: &Arc<Knobs>| Box::new(TagDevice::new(layout.clone(), options.blocks, knobs.clone()));
        let (prefill_device, decode_device) = (device(&prefill_knobs), device(&decode_knobs));
        let agent = |id, device: &TagDevice, inbox: &Inbox| {
            join(&hub, &config(id), None, device, inbox).expect("the agent starts")
        };
        let (prefill_inbox, decode_inbox) = (inbox(), inbox());
        let prefill = WorkerParts {
            config: config(PREFILL),
            role: Prefill::default(),
            agent: agent(PREFILL, &prefill_device, &prefill_inbox),
            device: prefill_device,
            inbox: prefill_inbox,
            session: session(PREFILL),
        };
        let decode = WorkerParts {
            config: config(DECODE),
            role: Decode::default(),
            agent: agent(DECODE, &decode_device, &decode_inbox),
            device: decode_device,
            inbox: decode_inbox,
            session: session(DECODE),
        };
        workers.insert(PREFILL, Worker::start(prefill).expect("the prefill worker starts"));
        workers.insert(DECODE, Worker::start(decode).expect("the decode worker starts"));
        Self {
            layout,
            prefill_knobs,
            decode_knobs,
            workers,
            from,
            reports: BTreeMap::new(),
            rows: BTreeMap::new(),
            ends: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn tell(&self, to: WorkerId, message: &ToWorker) {
        assert!(self.workers[&to].input().session(proto::session::encode_to_worker(message)));
    }

    pub(crate) fn submit(&self, to: WorkerId, request: &Asked, part: Part) {
        self.tell(to, &ToWorker::Submit(request.submit(part)));
    }

    /// Submits to both, the decode worker first or last.
    pub(crate) fn hand_off(&self, request: &Asked) {
        let decode = (DECODE, Part::Decode { prefill: PREFILL });
        let prefill = (PREFILL, Part::Prefill { decode: DECODE });
        let order = if request.id % 2 == 0 { [decode, prefill] } else { [prefill, decode] };
        order.into_iter().for_each(|(to, part)| self.submit(to, request, part));
    }

    pub(crate) fn cancel(&self, request: &Asked) {
        let message = ToWorker::Cancel { request: RequestId(request.id), epoch: request.epoch, choice: None };
        [PREFILL, DECODE].into_iter().for_each(|to| self.tell(to, &message));
    }

    /// Takes in what workers say until `done`.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} did not happen; ends {:?}, {:?}", self.ends, self.failures);
            if let Ok((from, message)) = self.from.recv_timeout(Duration::from_millis(10)) {
                self.take(from, message);
            }
        }
    }

    /// Takes in what workers say for a while.
    pub(crate) fn during(&mut self, time: Duration) {
        let begin = Instant::now();
        while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
            if let Ok((from, message)) = self.from.recv_timeout(left) {
                self.take(from, message);
            }
        }
    }

    fn take(&mut self, from: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Tokens(rows) => {
                for row in rows {
                    self.rows.entry(row.key).or_default().push((from, row));
                }
            }
            FromWorker::Ended { key, tokens, end } => {
                assert!(self.ends.insert(key, (tokens, end)).is_none(), "{key} ended twice");
            }
            FromWorker::Failed { request, epoch, why, detail } => self.failures.push((request, epoch, why, detail)),
            FromWorker::Report(report) => {
                self.reports.insert(from, report);
            }
        }
    }

    /// The text of a sequence, checked to be gapless and unrepeated.
    pub(crate) fn text(&self, request: &Asked, choice: u16) -> Vec<Token> {
        let key = request.key(choice);
        let mut rows: Vec<_> =
            self.rows.get(&key).into_iter().flatten().map(|(_, row)| (row.index, row.token)).collect();
        rows.sort_unstable();
        let first = request.committed.len() as u32;
        for (at, &(index, _)) in rows.iter().enumerate() {
            assert_eq!(index, first + at as u32, "the tokens of {key} are gapless and come once");
        }
        rows.into_iter().map(|(_, token)| token).collect()
    }

    pub(crate) fn wait_end(&mut self, request: &Asked) {
        let keys: Vec<_> = (0..request.choices).map(|choice| request.key(choice)).collect();
        self.until(&format!("the end of request {}", request.id), |cluster| {
            keys.iter().all(|key| cluster.ends.contains_key(key))
                || cluster.failures.iter().any(|(id, epoch, ..)| *id == keys[0].request && *epoch == keys[0].epoch)
        });
    }

    /// Waits until every block of both workers is free or cached and nothing runs.
    pub(crate) fn wait_idle(&mut self) {
        for id in [PREFILL, DECODE] {
            self.until(&format!("all blocks of {id} to be given back"), |cluster| {
                cluster.reports.get(&id).is_some_and(|report| {
                    report.blocks_available == report.blocks_total && report.running == 0 && report.waiting == 0
                })
            });
        }
    }
}

/// A request of a test.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) epoch: Epoch,
    pub(crate) prompt: Vec<Token>,
    pub(crate) committed: Vec<Token>,
    pub(crate) choices: u16,
    pub(crate) max_tokens: u32,
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    pub(crate) deadline: Duration,
    pub(crate) stop_tokens: Vec<Token>,
}

impl Asked {
    pub(crate) fn new(id: u64, prompt: Vec<Token>, max_tokens: u32) -> Self {
        Self {
            id,
            epoch: Epoch(1),
            prompt,
            committed: Vec::new(),
            choices: 1,
            max_tokens,
            seed: 99,
            lease: Duration::from_secs(2),
            deadline: Duration::from_secs(60),
            stop_tokens: Vec::new(),
        }
    }

    pub(crate) fn key(&self, choice: u16) -> SeqKey {
        SeqKey { request: RequestId(self.id), epoch: self.epoch, choice: Choice(choice) }
    }

    fn submit(&self, part: Part) -> Submit {
        let params = SamplingParams {
            max_tokens: self.max_tokens,
            stop_tokens: self.stop_tokens.clone(),
            ..SamplingParams::default()
        };
        Submit {
            request: RequestId(self.id),
            epoch: self.epoch,
            part,
            choices: (0..self.choices).map(|choice| (Choice(choice), self.committed.clone().into())).collect(),
            prompt: self.prompt.clone().into(),
            params: Arc::new(params),
            seed: self.seed,
            deadline: self.deadline,
            lease: self.lease,
            tenant: String::new(),
        }
    }

    /// What an undisturbed run gives.
    pub(crate) fn expected(&self, layout: &KvLayout, choice: u16) -> Vec<Token> {
        let seed = domain::Request::seed(self.seed, choice);
        let mut text = crate::device::expected(layout, &self.prompt, seed, self.max_tokens);
        if let Some(stop) = text.iter().position(|token| self.stop_tokens.contains(token)) {
            text.truncate(stop + 1);
        }
        text.split_off(self.committed.len())
    }
}

/// A prompt of `len` tokens.
pub(crate) fn prompt(len: u32, salt: u32) -> Vec<Token> {
    (0..len).map(|i| (i * 31 + salt * 7 + 1) % 997).collect()
}
