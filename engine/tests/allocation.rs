//! A step on the CPU device allocates nothing but the list of its samples.

use domain::plan::{BlockTable, Input, Sample, Span, StepOutput, StepPlan};
use domain::{BlockId, Dtype, SamplingParams, SeqKey, SlotId, StepId};
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa, Pinning};
use engine::device::{Device, DeviceLimits};
use engine::models::ModelFiles;
use engine::random::RandomSpec;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocations of all threads but those that asked not to be counted.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static UNCOUNTED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: it is the system's allocator, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !UNCOUNTED.get() {
            COUNT.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const THREADS: usize = 3;
const CHUNK: usize = 40;
const REPEATS: usize = 3;
/// Blocks of each pool.
const BLOCKS: u32 = 64;

fn device() -> CpuDevice {
    let dir = tempfile::TempDir::new().expect("a directory");
    let spec = RandomSpec::named("mistral", "tiny-window", 1, Some(Dtype::Bf16)).expect("it has this name");
    spec.write(dir.path(), &mut |_, _| {}).expect("it is written");
    let files = ModelFiles::load(dir.path()).expect("it can be read");
    let model = CpuModel::load(files.spec, &files.checkpoint, &mut |_| {}).expect("it loads");
    let layout = model.spec().kv_layout(Dtype::Bf16, Some(16));
    let blocks = vec![BLOCKS; layout.groups.len()];
    let limits = DeviceLimits { rows_max: CHUNK, outputs_max: 4, context_max: 1000, blocks, slots_max: 1 };
    let config =
        CpuConfig { layout, limits, threads: THREADS, pinning: Pinning::Off, guarded: false, isa: Isa::best() };
    CpuDevice::new(Arc::new(model), config).expect("it starts")
}

fn plan(device: &CpuDevice, step: u64, start: u32, rows: usize, samples: usize) -> Arc<StepPlan> {
    // All from the beginning, so that the tables of the slot do not grow.
    let blocks: Vec<BlockId> = (0..BLOCKS).map(BlockId).collect();
    let params = Arc::new(SamplingParams { temperature: 0.7, top_p: 0.9, ..SamplingParams::default() });
    let (key, row) = (SeqKey::default(), rows as u32 - 1);
    let sample = Sample { key, row, params, seed: 1, index: 0, masked: false };
    let span = Span {
        key: SeqKey::default(),
        slot: SlotId(0),
        start,
        inputs: (0..rows as u32).map(Input::Token).collect(),
        samples: vec![sample; samples],
        scores: Vec::new(),
        hidden: None,
        adapter: None,
    };
    let tables = vec![BlockTable { first: 0, blocks }; device.layout().groups.len()];
    Arc::new(StepPlan::opening(StepId(step), Vec::new(), [(span, tables)]))
}

fn wait(device: &mut CpuDevice) -> StepOutput {
    loop {
        match device.poll() {
            Some(output) => return output,
            None => std::hint::spin_loop(),
        }
    }
}

#[test]
fn a_step_allocates_only_its_list_of_samples() {
    UNCOUNTED.set(true);
    let mut device = device();
    // The first steps may: threads start, and the queue's own parts are made.
    let (mut step, mut start) = (0, 0);
    let mut run = |rows: usize, samples: usize| {
        step += 1;
        let plan = plan(&device, step, start, rows, samples);
        start += rows as u32;
        let before = COUNT.load(Ordering::SeqCst);
        device.submit(plan).expect("the plan is sound");
        let output = wait(&mut device);
        assert_eq!(output.sampled.expect("the step succeeds").len(), samples);
        COUNT.load(Ordering::SeqCst) - before
    };
    run(CHUNK, 4);
    run(1, 1);
    for (rows, samples) in [(CHUNK, 0), (17, 1), (1, 1), (1, 4), (CHUNK, 2), (5, 0), (1, 1)] {
        let lists = samples.min(1);
        // What a step allocates, it allocates every time; a thread of the test runner that first sleeps does so once.
        let least = (0..REPEATS).map(|_| run(rows, samples)).min();
        assert_eq!(least, Some(lists), "{rows} rows, {samples} samples");
    }
}
