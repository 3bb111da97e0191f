//! Faults that are planted in the host's side of the device are found, and without them nothing is.
//!
//! Each breaks a rule of what comes before what: on a card it shows now and then, as wrong tokens or as nothing at all.
//! The emulator takes streams in an order that a seed decides, and stands still where a test wants it to. With
//! `SIMT_CHECK=1` it also names the two accesses that nothing orders.
//!
//! A planted fault may end the device for its whole process: these tests are for nextest, which gives each its own.

use super::{BLOCK, Models, Run, greedy, span};
use domain::plan::{Input, StepOutput};
use domain::planted_bugs::{Bug, plant};
use domain::{Dtype, ProgressWord, StepId, Token};
use engine::random::{RandomSpec, Shape};
use kv_memory::{CopyOrder, Frame, PoolRange, SumOf};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use tests_cuda::Emulator;

/// Rows of the prompt.
const PROMPT: usize = 40;

/// Layers: a word that is ahead lies about each but the first one.
const LAYERS: usize = 4;

/// Bytes of a range that is copied: less than a slice, so that a copy of a sequence is many of them.
const RANGE_BYTES: usize = 1024;

/// What a scenario makes; or why the device is lost.
type Made = Result<Vec<Vec<u8>>, String>;

/// Runs a scenario without a fault, twice, and with it.
fn assert_found(bug: Bug, scenario: fn(&Models, &Emulator) -> Made) {
    static PLANTED: Mutex<()> = Mutex::new(());
    let _one_at_a_time = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(emulator) = Emulator::find() else { return println!("skipped: {bug:?} is found in the emulator alone") };
    let spec = RandomSpec::named("llama", "tiny-64", 5, Some(Dtype::Bf16)).expect("a named shape");
    let shape: &'static Shape = Box::leak(Box::new(Shape { layers: LAYERS, ..*spec.shape }));
    let models = Models::of_shape(RandomSpec { shape, ..spec }).expect("the emulator has a card");
    let clean = scenario(&models, emulator).unwrap_or_else(|lost| panic!("{bug:?} is not planted, and yet: {lost}"));
    let again = scenario(&models, emulator);
    assert!(again.as_ref() == Ok(&clean), "{bug:?} is not planted, and yet something differs");
    plant(Some(bug));
    let found = scenario(&models, emulator);
    plant(None);
    match found {
        Ok(made) => assert_ne!(made, clean, "{bug:?} is not found"),
        Err(lost) => println!("{bug:?} is found: {lost}"),
    }
}

/// What a step told, to the last bit: its tokens and their logarithms.
fn told(output: StepOutput) -> Result<Vec<u8>, String> {
    let outputs = output.sampled?;
    let top = outputs.into_iter().flat_map(|sampled| sampled.logprobs.expect("asked for").top);
    Ok(top.flat_map(|(token, logprob)| [token.to_le_bytes(), logprob.to_le_bytes()].concat()).collect())
}

/// The ranges of layers of sequence `number` in the pool, a layer after the other.
fn ranges(run: &Run, number: usize, layers: Range<usize>) -> Vec<PoolRange> {
    let layout = run.device.layout();
    let blocks = &run.tables(number)[0].blocks[..PROMPT.div_ceil(BLOCK as usize)];
    let slices = layers.flat_map(|layer| {
        let slice = layout.slice_range(0, layer);
        blocks.iter().map(move |block| (block.0 as usize * layout.record_bytes(0) + slice.start, slice.len()))
    });
    let pieces = slices.flat_map(|(at, len)| (at..at + len).step_by(RANGE_BYTES));
    pieces.map(|at| PoolRange { at: at as u64, len: RANGE_BYTES }).collect()
}

/// Orders a copy from the pool.
fn order(ranges: Vec<PoolRange>, frame: Frame) -> CopyOrder {
    CopyOrder { frame, ranges, part: None, sum: SumOf::Nothing, waker: None }
}

/// Reads layers of a sequence as a lane or a tier does.
fn gather(run: &Run, number: usize, layers: Range<usize>) -> Result<Vec<u8>, String> {
    let ranges = ranges(run, number, layers);
    let frame = Frame::new(ranges.len() * RANGE_BYTES).map_err(|error| error.to_string())?;
    let pool = run.device.pool(0);
    let copier = pool.place().device().expect("a card's").copier;
    let copied = copier.gather(order(ranges, frame)).wait().map_err(|error| error.to_string())?;
    Ok(copied.frame[..copied.bytes].to_vec())
}

/// Writes all layers of a sequence as a lane or a tier does.
fn scatter(run: &Run, number: usize, bytes: &[u8]) -> Result<(), String> {
    let ranges = ranges(run, number, 0..LAYERS);
    let mut frame = Frame::new(bytes.len()).map_err(|error| error.to_string())?;
    frame[..bytes.len()].copy_from_slice(bytes);
    let pool = run.device.pool(0);
    let copier = pool.place().device().expect("a card's").copier;
    copier.scatter(order(ranges, frame), 0).wait().map(drop).map_err(|error| error.to_string())
}

/// A step of sequence `number` that decodes what the step before it sampled.
fn decoding(run: &mut Run, number: usize, position: usize, input: Input, index: u32) {
    let mut next = span(number, position, &[0], Some(greedy()));
    next.inputs = vec![input];
    next.samples[0].index = index;
    run.submit(vec![next]);
}

/// Two steps are packed while the device stands still.
fn two_steps_in_flight(models: &Models, emulator: &Emulator) -> Made {
    let mut run = models.on_card();
    let output = run.prompt(1, &models.tokens(PROMPT, 1), &[]);
    let mut first = output.sampled.as_ref().map_err(Clone::clone)?[0].token;
    let mut made = vec![told(output)?];
    // One alone tells how many operations a step has.
    let before = emulator.enqueued();
    decoding(&mut run, 1, PROMPT, Input::Token(first), 1);
    let output = run.end();
    first = output.sampled.as_ref().map_err(Clone::clone)?[0].token;
    made.push(told(output)?);
    let of_step = emulator.enqueued() - before;
    for pair in 0..3 {
        let at = 2 * pair + 1;
        let before = emulator.enqueued();
        emulator.hold();
        decoding(&mut run, 1, PROMPT + at, Input::Token(first), at as u32 + 1);
        decoding(&mut run, 1, PROMPT + at + 1, Input::Sampled(0), at as u32 + 2);
        while emulator.enqueued() < before + 2 * of_step && run.device.lost().is_none() {
            std::thread::yield_now();
        }
        emulator.let_go();
        made.push(told(run.end())?);
        let last = run.end();
        first = last.sampled.as_ref().map_err(Clone::clone)?[0].token;
        made.push(told(last)?);
    }
    Ok(made)
}

#[test]
fn a_slab_that_is_reused_before_its_event() {
    assert_found(Bug::SlabReusedEarly, two_steps_in_flight);
}

#[test]
fn a_graph_with_a_stale_pointer() {
    assert_found(Bug::GraphOutlivesMemory, two_steps_in_flight);
}

/// A sequence is computed, and copied to another device, which decodes it at once.
fn handed_over(models: &Models, _: &Emulator) -> Made {
    let tokens = models.tokens(PROMPT, 2);
    let (mut from, mut to) = (models.on_card(), models.on_card());
    let first: Token = from.prompt(1, &tokens, &[]).sampled?[0].token;
    let kv = gather(&from, 1, 0..LAYERS)?;
    // Something else was there.
    to.prompt(2, &models.tokens(PROMPT, 3), &[]).sampled?;
    scatter(&to, 2, &kv)?;
    decoding(&mut to, 2, PROMPT, Input::Token(first), 1);
    Ok(vec![told(to.end())?])
}

#[test]
fn a_copy_that_compute_does_not_wait_for() {
    // Mostly the copy comes first by itself.
    if !Emulator::find().is_some_and(Emulator::is_checked) {
        return println!("skipped: what nothing orders is found with SIMT_CHECK=1; `make test-cuda` sets it");
    }
    assert_found(Bug::CopyNotAwaited, handed_over);
}

/// A reader takes what a step wrote as soon as its end is told, as one does whose release is answered then.
fn read_at_the_end(models: &Models, _: &Emulator) -> Made {
    let mut run = models.on_card();
    let output = run.prompt(1, &models.tokens(PROMPT, 4), &[]);
    Ok(vec![gather(&run, 1, 0..LAYERS)?, told(output)?])
}

#[test]
fn a_lease_that_is_answered_before_the_device_has_finished() {
    assert_found(Bug::EndToldEarly, read_at_the_end);
}

/// A reader takes each layer as soon as the word tells of it. The step stands still behind each layer that it wrote.
fn read_behind_the_word(models: &Models, emulator: &Emulator) -> Made {
    let mut run = models.on_card();
    let word = run.device.progress();
    let mut made = Vec::new();
    emulator.hold_behind(Some(c"rope_cache"));
    run.submit(vec![span(1, 0, &models.tokens(PROMPT, 5), Some(greedy()))]);
    for layer in 0..LAYERS {
        loop {
            // What is held has raised the word that it raises.
            let is_held = emulator.is_held();
            word.look();
            if word.get() >= ProgressWord::mark(StepId(run.step), layer as u16) || run.device.lost().is_some() {
                break;
            }
            if is_held {
                emulator.go_on();
            }
            std::thread::yield_now();
        }
        made.push(gather(&run, 1, layer..layer + 1)?);
    }
    emulator.hold_behind(None);
    made.push(told(run.end())?);
    Ok(made)
}

#[test]
fn a_progress_word_that_is_raised_too_early() {
    if Emulator::find().is_some_and(Emulator::is_checked) {
        return println!("skipped: with SIMT_CHECK=1 the emulator does not see that the host has read the word");
    }
    assert_found(Bug::ProgressAhead, read_behind_the_word);
}
