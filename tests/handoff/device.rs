//! A device whose tokens are made of what it reads back from the KV pool: a lost, swapped, torn or early-reused block
//! changes the text.

use domain::plan::{Input, Sampled, StepOutput, StepPlan};
use domain::{KvLayout, ProgressWord, Token};
use engine::device::{Device, DeviceLimits, PoolMemory, STEPS_IN_FLIGHT_MAX, SubmitError};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tests::cluster::Asked;

pub(crate) const VOCAB: u64 = 1000;

/// What a test can do to a device while it runs.
#[derive(Default)]
pub(crate) struct Knobs {
    /// Microseconds that a layer takes.
    pub(crate) layer_us: AtomicU64,
    /// The step that fails in its second layer; 0: none.
    pub(crate) failing_step: AtomicU64,
    /// The most rows that a step had.
    pub(crate) rows_seen: AtomicU64,
    /// The most spans that a step had.
    pub(crate) spans_seen: AtomicU64,
}

struct Pool(UnsafeCell<Vec<u64>>);

// SAFETY: all access is through raw pointers, as with a real pool; what races is thrown away by the protocol.
unsafe impl Sync for Pool {}

impl PoolMemory for Pool {
    fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the vector is never resized.
        unsafe { (*self.0.get()).as_mut_ptr().cast() }
    }
    fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.0.get()).len() * 8 }
    }
}

impl Pool {
    fn word(&self, byte: usize) -> *mut u64 {
        assert!(byte + 8 <= self.len());
        // SAFETY: inside the vector.
        unsafe { self.as_ptr().add(byte).cast() }
    }
}

pub(crate) struct TagDevice {
    layout: KvLayout,
    limits: DeviceLimits,
    pools: Vec<Arc<Pool>>,
    progress: ProgressWord,
    plans: Sender<Arc<StepPlan>>,
    outputs: Receiver<StepOutput>,
    in_flight: usize,
    waker: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl TagDevice {
    pub(crate) fn new(layout: KvLayout, limits: DeviceLimits, knobs: Arc<Knobs>) -> Self {
        let pools = limits.blocks.iter().enumerate().map(|(group, &blocks)| {
            Arc::new(Pool(UnsafeCell::new(vec![u64::MAX; layout.record_bytes(group) / 8 * blocks as usize])))
        });
        let pools: Vec<_> = pools.collect();
        let progress = ProgressWord::new();
        let (plans, receiver) = channel::<Arc<StepPlan>>();
        let (sender, outputs) = channel();
        let waker: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
        let runner =
            Runner { layout: layout.clone(), pools: pools.clone(), progress: progress.clone(), knobs, sampled: vec![] };
        std::thread::spawn({
            let waker = waker.clone();
            let mut runner = runner;
            move || {
                while let Ok(plan) = receiver.recv() {
                    let sampled = runner.run(&plan);
                    let output = StepOutput {
                        step: plan.step,
                        sampled,
                        elapsed: Duration::from_micros(10),
                        in_kernels: Duration::from_micros(10),
                    };
                    if sender.send(output).is_err() {
                        return;
                    }
                    if let Some(waker) = waker.get() {
                        waker();
                    }
                }
            }
        });
        Self { layout, limits, pools, progress, plans, outputs, in_flight: 0, waker }
    }
}

impl Device for TagDevice {
    fn layout(&self) -> &KvLayout {
        &self.layout
    }
    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }
    fn submit(&mut self, plan: Arc<StepPlan>) -> Result<(), SubmitError> {
        if self.in_flight == STEPS_IN_FLIGHT_MAX {
            return Err(SubmitError::Busy);
        }
        self.in_flight += 1;
        self.plans.send(plan).map_err(|_| SubmitError::Lost("the thread ended".to_owned()))
    }
    fn poll(&mut self) -> Option<StepOutput> {
        let output = self.outputs.try_recv().ok()?;
        self.in_flight -= 1;
        Some(output)
    }
    fn set_waker(&mut self, waker: Box<dyn Fn() + Send + Sync>) {
        assert!(self.waker.set(waker).is_ok(), "set once");
    }
    fn progress(&self) -> ProgressWord {
        self.progress.clone()
    }
    fn pool(&self, group: usize) -> Arc<dyn PoolMemory> {
        self.pools[group].clone()
    }
    fn describe(&self) -> String {
        "tags".to_owned()
    }
}

struct Runner {
    layout: KvLayout,
    pools: Vec<Arc<Pool>>,
    progress: ProgressWord,
    knobs: Arc<Knobs>,
    sampled: Vec<Token>,
}

impl Runner {
    fn run(&mut self, plan: &StepPlan) -> Result<Vec<Sampled>, String> {
        self.knobs.rows_seen.fetch_max(plan.rows() as u64, Ordering::Relaxed);
        self.knobs.spans_seen.fetch_max(plan.spans.len() as u64, Ordering::Relaxed);
        for copy in &plan.copies {
            let (group, record) = (usize::from(copy.group.0), self.layout.record_bytes(usize::from(copy.group.0)));
            for at in (0..record).step_by(8) {
                let pool = &self.pools[group];
                // SAFETY: both words are inside the pool.
                unsafe {
                    let value = pool.word(copy.from.0 as usize * record + at).read_volatile();
                    pool.word(copy.to.0 as usize * record + at).write_volatile(value);
                }
            }
        }
        let layers = self.layout.layers() as u16;
        for layer in 0..layers {
            std::thread::sleep(Duration::from_micros(self.knobs.layer_us.load(Ordering::Relaxed)));
            if layer == 1 && self.knobs.failing_step.load(Ordering::Relaxed) == plan.step.0 {
                return Err("the test made this step fail".to_owned());
            }
            self.write_layer(plan, layer);
            self.progress.raise(plan.step, layer);
        }
        let mut sampled = Vec::new();
        for span in plan.spans.iter().filter(|span| !span.samples.is_empty()) {
            let last = span.start + span.inputs.len() as u32 - 1;
            let mut state = 0;
            for layer in 0..layers {
                let (group, _) = self.locate(layer);
                for position in self.layout.window_start(group, last)..=last {
                    let (key, value) = self.slots(span, layer, position);
                    // SAFETY: both words are inside the pool.
                    let (key, value) = unsafe { (key.read_volatile(), value.read_volatile()) };
                    assert_eq!(value, !key, "a torn or foreign slot at position {position} of {}", span.key);
                    state = mix(state, key);
                }
            }
            for sample in &span.samples {
                let token = (mix(mix(state, sample.seed), u64::from(sample.index)) % VOCAB) as Token;
                sampled.push(Sampled { key: sample.key, token, logprobs: None });
            }
        }
        self.sampled = sampled.iter().map(|sampled| sampled.token).collect();
        Ok(sampled)
    }

    fn write_layer(&self, plan: &StepPlan, layer: u16) {
        for span in &plan.spans {
            for (at, input) in span.inputs.iter().enumerate() {
                let token = match *input {
                    Input::Token(token) => token,
                    Input::Sampled(row) => self.sampled[row as usize],
                };
                let position = span.start + at as u32;
                let (key, value) = self.slots(span, layer, position);
                let tag = tag(layer, position, token);
                // SAFETY: both words are inside the pool.
                unsafe {
                    key.write_volatile(tag);
                    value.write_volatile(!tag);
                }
            }
        }
    }

    fn locate(&self, layer: u16) -> (usize, usize) {
        let groups = self.layout.groups.iter().enumerate();
        let mut found = groups.filter_map(|(g, group)| Some((g, group.layers.iter().position(|&l| l == layer)?)));
        found.next().expect("every layer is in a group")
    }

    /// Where K and V of a position are: one head of two f32 each.
    fn slots(&self, span: &domain::plan::Span, layer: u16, position: u32) -> (*mut u64, *mut u64) {
        let (group, index) = self.locate(layer);
        let size = self.layout.block_tokens;
        let table = &span.tables[group];
        let block = table.blocks[(position / size - table.first) as usize];
        let slice = block.0 as usize * self.layout.record_bytes(group) + self.layout.slice_range(group, index).start;
        let key = slice + (position % size) as usize * 8;
        (self.pools[group].word(key), self.pools[group].word(key + size as usize * 8))
    }
}

fn mix(state: u64, value: u64) -> u64 {
    let x = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(17)
}

fn tag(layer: u16, position: u32, token: Token) -> u64 {
    mix(mix(u64::from(layer) + 1, u64::from(position)), u64::from(token))
}

/// The text of a sequence of `request` that an undisturbed run gives, after the committed tokens.
pub(crate) fn expected(layout: &KvLayout, request: &Asked, choice: u16) -> Vec<Token> {
    let (mut all, prompt) = (request.prompt.clone(), request.prompt.len());
    let seed = domain::Request::seed(request.seed, choice);
    for index in 0..request.params.max_tokens {
        let last = all.len() as u32 - 1;
        let mut state = 0;
        for layer in 0..layout.layers() as u16 {
            let group = layout.groups.iter().position(|group| group.layers.contains(&layer)).expect("a group");
            for position in layout.window_start(group, last)..=last {
                state = mix(state, tag(layer, position, all[position as usize]));
            }
        }
        let token = (mix(mix(state, seed), u64::from(index)) % VOCAB) as Token;
        all.push(token);
        if request.params.stop_tokens.contains(&token) {
            break;
        }
    }
    all.split_off(prompt + request.committed.len())
}
