//! The device beside the one on the CPU: the same models, the same plans.

#[cfg(feature = "planted")]
#[path = "device/faults.rs"]
mod faults;
#[path = "../../reference/gguf_writer.rs"]
#[expect(dead_code, reason = "models of these tests have no tokenizer, and some of it is for them")]
mod gguf_writer;
#[path = "device/launches.rs"]
mod launches;

use cuda::kernels::TOP_MAX;
use domain::plan::{
    BlockTable, HiddenRows, Input, Mask, Sample, Score, SlotChange, Span, StepOutput, StepPlan, TokenSet,
};
use domain::{
    BlockId, Choice, Dtype, Epoch, KvLayout, RequestId, SamplingParams, SeqKey, SlotId, StepId, Token, Tokens,
};
use engine::checkpoint::TensorView;
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa, Pinning};
use engine::cuda::{Card, CudaDevice, CudaModel, KernelSet};
use engine::device::{Device, DeviceLimits};
use engine::models::tensors::tensors;
use engine::models::{Family, ModelFiles};
use engine::quant::WeightFormat;
use engine::random::{RandomSpec, SHAPES, Shape};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tests_cuda::blocks::Blocks;
use tests_cuda::kernel_cache;

/// Tokens of a block.
const BLOCK: u32 = 16;
/// The longest sequence, in tokens.
const CONTEXT: usize = 256;
/// Sequences that a device keeps, and so outputs of a step.
const SLOTS: usize = 8;
/// Blocks of a sequence.
const BLOCKS: u32 = CONTEXT as u32 / BLOCK;

/// How far a log probability may be from that of the CPU, which computes in f32 where the card rounds to bf16. Random
/// weights spread such errors more than trained ones do.
const NEAR: f32 = 0.5;

/// Every family of dense models.
const FAMILIES: [&str; 10] =
    ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2", "granite", "ministral3"];

/// A model for a card and for the CPU.
struct Models {
    files: ModelFiles,
    /// The same numbers, for the CPU, which would round activations to 8 bits for quantised weights.
    widened: Option<ModelFiles>,
    card: Arc<CudaModel>,
    _dir: tempfile::TempDir,
}

/// Opens the first card. `None`: there is none, which is said.
fn open_card() -> Option<Arc<Card>> {
    match Card::open(0, kernel_cache().as_deref()) {
        Ok(card) => Some(card),
        Err(error) => {
            println!("skipped: {error}; `make test-cuda` runs these tests in an emulator");
            None
        }
    }
}

impl Models {
    /// Makes a model of random weights. `None`: there is no card, which is said.
    fn random(family: &str) -> Option<Self> {
        let shape = if family == "ministral3" { "tiny-64-yarn" } else { "tiny-64" };
        Self::of_shape(RandomSpec::named(family, shape, 5, Some(Dtype::Bf16)).expect("a named shape"))
    }

    /// The same, of a shape of its own.
    fn of_shape(spec: RandomSpec) -> Option<Self> {
        let card = open_card()?;
        let dir = tempfile::TempDir::new().expect("a directory");
        spec.write(dir.path(), &mut |_, _| ()).expect("the checkpoint is written");
        let files = ModelFiles::load(dir.path()).expect("the checkpoint loads");
        let card = CudaModel::load(card, files.spec.clone(), &files.checkpoint, &mut |_| ()).expect("the model loads");
        Some(Self { files, widened: None, card: Arc::new(card), _dir: dir })
    }

    /// Makes a model of random weights in a GGUF file, whose matrices have the formats that `format` says by their
    /// names. `None`: there is no card, which is said.
    fn quantised(is_tied: bool, format: &dyn Fn(&str) -> Blocks) -> Option<Self> {
        static WIDE: LazyLock<[Shape; 2]> = LazyLock::new(|| {
            let tiny = SHAPES.iter().find(|shape| shape.name == "tiny-64").expect("a named shape");
            // Rows of whole blocks of 256.
            [false, true].map(|tied| Shape { hidden: 256, ffn: 512, tied, ..*tiny })
        });
        let card = open_card()?;
        let dir = tempfile::TempDir::new().expect("a directory");
        let family = Family::named("llama").expect("a family");
        let spec = RandomSpec { family, shape: &WIDE[usize::from(is_tied)], seed: 7, dtype: Dtype::Bf16 };
        spec.write(dir.path(), &mut |_, _| ()).expect("the checkpoint is written");
        let plain = ModelFiles::load(dir.path()).expect("the checkpoint loads");
        let file = dir.path().join("quantised.gguf");
        let matrix = |name: &str, matrix: &TensorView<'_>| {
            let (blocks, numbers) = (format(name), matrix.widened(0..matrix.height()));
            (blocks.kind(), numbers.chunks_exact(matrix.width()).map(|row| blocks.quantise(row)).collect())
        };
        gguf_writer::model_in(&plain, "llama", &matrix).write(&file);
        let files = ModelFiles::load(&file).expect("the file loads");
        let file = dir.path().join("widened.gguf");
        let matrix = |_: &str, matrix: &TensorView<'_>| {
            let row = |row: &[f32]| row.iter().flat_map(|number| number.to_le_bytes()).collect();
            let numbers = matrix.widened(0..matrix.height());
            (gguf_writer::kind(Dtype::F32), numbers.chunks_exact(matrix.width()).map(row).collect())
        };
        gguf_writer::model_in(&files, "llama", &matrix).write(&file);
        let widened = Some(ModelFiles::load(&file).expect("the file loads"));
        let card = CudaModel::load(card, files.spec.clone(), &files.checkpoint, &mut |_| ()).expect("the model loads");
        Some(Self { files, widened, card: Arc::new(card), _dir: dir })
    }

    fn layout(&self) -> KvLayout {
        self.files.spec.kv_layout(Dtype::Bf16, Some(BLOCK))
    }

    fn limits(&self, slots: usize) -> DeviceLimits {
        let blocks = vec![BLOCKS * slots as u32; self.layout().groups.len()];
        DeviceLimits { rows_max: 192, outputs_max: 2 * slots, context_max: CONTEXT, blocks, slots_max: slots }
    }

    fn on_card(&self) -> Run {
        let device = CudaDevice::new(self.card.clone(), self.layout(), self.limits(SLOTS)).expect("the device starts");
        Run::new(Box::new(device))
    }

    /// Makes a device with kernels of the set `fast` and so many slots.
    fn on_card_fast(&self, slots: usize) -> Run {
        let (layout, limits) = (self.layout(), self.limits(slots));
        let device = CudaDevice::with_kernels(self.card.clone(), layout, limits, KernelSet::Fast);
        Run::new(Box::new(device.expect("the device starts")))
    }

    fn on_cpu(&self) -> Run {
        let files = self.widened.as_ref().unwrap_or(&self.files);
        let weights = CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| ()).expect("the weights pack");
        let config = CpuConfig {
            layout: self.layout(),
            limits: self.limits(SLOTS),
            threads: 1,
            pinning: Pinning::Off,
            guarded: false,
            isa: Isa::best(),
        };
        Run::new(Box::new(CpuDevice::new(Arc::new(weights), config).expect("a device")))
    }

    fn tokens(&self, count: usize, seed: u32) -> Vec<Token> {
        let token = |i: u32| (i * i + 7 * i + 31 * seed + 3) % self.files.spec.vocab as u32;
        (0..count as u32).map(token).collect()
    }
}

/// A device and the number of its last step.
struct Run {
    device: Box<dyn Device>,
    step: u64,
    groups: usize,
}

fn key(number: usize) -> SeqKey {
    SeqKey { request: RequestId(number as u64), epoch: Epoch(1), choice: Choice(0) }
}

fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, logprobs: Some(TOP_MAX as u32), ..SamplingParams::default() }
}

/// A span of sequence `number`, in the slot of that number, which samples behind its last row.
fn span(number: usize, start: usize, inputs: &[Token], params: Option<SamplingParams>) -> Span {
    let sample = |params| Sample {
        key: key(number),
        row: inputs.len() as u32 - 1,
        params: Arc::new(params),
        seed: 1,
        index: 0,
        masked: false,
    };
    Span {
        key: key(number),
        slot: SlotId(number as _),
        adapter: None,
        start: start as u32,
        inputs: inputs.iter().copied().map(Input::Token).collect(),
        samples: params.map(sample).into_iter().collect(),
        scores: Vec::new(),
        hidden: None,
    }
}

impl Run {
    fn new(device: Box<dyn Device>) -> Self {
        let groups = device.layout().groups.len();
        Self { device, step: 0, groups }
    }

    /// Blocks of sequence `number`, in an order of their own.
    fn tables(&self, number: usize) -> Vec<BlockTable> {
        let block = |block: u32| BlockId((block * 5 + 3) % BLOCKS + number as u32 * BLOCKS);
        vec![BlockTable { first: 0, blocks: (0..BLOCKS).map(block).collect() }; self.groups]
    }

    fn submit(&mut self, spans: Vec<Span>) {
        self.step += 1;
        let spans = spans.into_iter().map(|span| {
            let tables = self.tables(span.slot.0 as usize);
            (span, tables)
        });
        let plan = StepPlan::opening(StepId(self.step), Vec::new(), spans.collect::<Vec<_>>());
        self.device.submit(Arc::new(plan)).expect("the plan is sound");
    }

    fn end(&mut self) -> StepOutput {
        loop {
            if let Some(output) = self.device.poll() {
                return output;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn run(&mut self, spans: Vec<Span>) -> StepOutput {
        self.submit(spans);
        self.end()
    }

    /// Computes a prompt in chunks that end at these rows, and returns what the last one gives.
    fn prompt(&mut self, number: usize, tokens: &[Token], ends: &[usize]) -> StepOutput {
        let mut start = 0;
        for &end in ends {
            self.run(vec![span(number, start, &tokens[start..end], None)]);
            start = end;
        }
        self.run(vec![span(number, start, &tokens[start..], Some(greedy()))])
    }
}

/// The most probable tokens of an output's only sample.
fn top(output: &StepOutput) -> &[(Token, f32)] {
    let sampled = output.sampled.as_ref().expect("the step ran");
    &sampled[0].logprobs.as_ref().expect("asked for").top
}

/// Checks that log probabilities are near those of the CPU: of a prompt, then of decoding, whose steps are replayed
/// graphs on a card.
fn check_near_cpu(what: &str, there: &mut Run, models: &Models) {
    let mut here = models.on_cpu();
    let mut tokens = models.tokens(61, 0);
    let mut start = 0;
    let mut farthest: f32 = 0.0;
    for _ in 0..6 {
        let next = |run: &mut Run| run.run(vec![span(1, start, &tokens[start..], Some(greedy()))]);
        let (found, wanted) = (next(there), next(&mut here));
        let (found, wanted) = (top(&found), top(&wanted));
        for (token, logprob) in wanted {
            if let Some((_, other)) = found.iter().find(|(other, _)| other == token) {
                farthest = farthest.max((logprob - other).abs());
            }
        }
        assert!(farthest <= NEAR, "{what}: {farthest} apart, {found:?}, not {wanted:?}");
        if wanted[0].1 - wanted[1].1 > 2.0 * NEAR {
            assert_eq!(found[0].0, wanted[0].0, "{what}: the most probable token");
        }
        start = tokens.len();
        tokens.push(wanted[0].0);
    }
    println!("{what}: log probabilities are at most {farthest} apart");
}

#[test]
fn every_family_computes_what_the_cpu_does() {
    for family in FAMILIES {
        let Some(models) = Models::random(family) else { return };
        check_near_cpu(family, &mut models.on_card(), &models);
    }
}

/// Checks that a row has the same bits in chunks, beside others, and as a row of a graph.
fn check_rows(what: &str, models: &Models) {
    let mut run = models.on_card();
    let tokens = models.tokens(150, 1);
    let whole = run.prompt(1, &tokens, &[]);
    for (number, ends) in [(2, &[149][..]), (3, &[16, 90]), (4, &[1, 2, 33, 148])] {
        let cut = run.prompt(number, &tokens, ends);
        assert_eq!(top(&cut), top(&whole), "{what}: cut at {ends:?}");
    }
    // Beside others: those that decode, and prompts.
    let others = models.tokens(40, 2);
    run.prompt(5, &others, &[]);
    let spans =
        vec![span(5, 39, &others[39..], None), span(6, 0, &others[..31], None), span(7, 0, &tokens, Some(greedy()))];
    let beside = run.run(spans);
    assert_eq!(top(&beside), top(&whole), "{what}: beside others");
    // As a row of a graph that others fill up.
    for number in [2, 3, 4] {
        run.prompt(number, &tokens[..149], &[]);
    }
    let spans = [4, 2, 3].map(|number| span(number, 149, &tokens[149..], Some(greedy())));
    let together = run.run(spans.to_vec());
    for sampled in together.sampled.expect("the step ran") {
        assert_eq!(sampled.logprobs.expect("asked for").top, top(&whole), "{what}: {:?} decodes", sampled.key);
    }
}

#[test]
fn a_row_has_the_same_bits_however_it_is_computed() {
    for family in ["llama", "gemma3_text"] {
        let Some(models) = Models::random(family) else { return };
        check_rows(family, &models);
    }
}

#[test]
fn weights_stay_in_the_formats_of_their_file() {
    for blocks in Blocks::ALL {
        let Some(models) = Models::quantised(blocks == Blocks::Q6K, &|_| blocks) else { return };
        let kept = match blocks {
            Blocks::Q8_0 | Blocks::Q5_0 => WeightFormat::Q8_0,
            Blocks::Q4_0 => WeightFormat::Q4_0,
            Blocks::Q4_1 => WeightFormat::Q4_1,
            Blocks::Q4K => WeightFormat::Q4K,
            Blocks::Q6K => WeightFormat::Q6K,
        };
        let shares = models.card.shares();
        let (norms, matrices) = (shares.of(WeightFormat::Plain(Dtype::F32)), shares.of(kept));
        assert_eq!(shares.bytes(), norms + matrices, "{blocks:?}: {}", shares.told(|bytes| bytes.to_string()));
        let numbers: usize = tensors(&models.files.spec)
            .iter()
            .filter(|tensor| tensor.shape.len() == 2)
            .map(|tensor| tensor.numbers() as usize)
            .sum();
        // Packing adds at most what a unit is larger than its blocks.
        let stored = kept.bytes(numbers).expect("whole blocks") as u64;
        assert!((stored..=stored * 103 / 100).contains(&matrices), "{blocks:?}: {matrices} bytes for {stored}");
        let what = format!("{blocks:?}");
        check_near_cpu(&what, &mut models.on_card(), &models);
        check_rows(&what, &models);
    }
}

#[test]
fn a_layer_may_have_matrices_of_several_formats() {
    // As in files of the kind Q4_K_M; and gates and ups that differ, too.
    let format = |name: &str| match name {
        _ if name.contains("v_proj") || name.contains("embed") => Blocks::Q6K,
        _ if name.contains("gate") => Blocks::Q8_0,
        _ if name.contains("0.mlp.down") => Blocks::Q5_0,
        _ => Blocks::Q4K,
    };
    let Some(models) = Models::quantised(true, &format) else { return };
    let shares = models.card.shares();
    for kept in [WeightFormat::Q4K, WeightFormat::Q6K, WeightFormat::Q8_0] {
        assert!(shares.of(kept) > 0, "{kept}: {}", shares.told(|bytes| bytes.to_string()));
    }
    assert_eq!(shares.of(WeightFormat::Plain(Dtype::Bf16)), 0, "nothing is widened");
    check_near_cpu("several formats", &mut models.on_card(), &models);
    check_rows("several formats", &models);
}

/// Sequences that decode in one graph, more than our own kernels take in the set `fast`.
const MANY: usize = 24;

#[test]
fn fast_kernels_compute_what_the_cpu_does_and_say_what_they_are() {
    // The first has biases.
    for family in ["qwen2", "llama", "gemma3_text"] {
        let Some(models) = Models::random(family) else { return };
        let mut run = models.on_card_fast(MANY);
        assert!(!run.device.batch_invariant() && models.on_card().device.batch_invariant());
        let told = run.device.describe();
        assert!(told.contains("fast kernels, with cublasLt") && !told.contains("batch-invariant"), "{told}");
        check_near_cpu(family, &mut run, &models);
        // Steps of many rows are graphs with products of the library: each row is what it is alone, nearly.
        let prompts: Vec<Vec<Token>> = (0..MANY).map(|number| models.tokens(9 + number % 3, number as u32)).collect();
        let mut alone = Vec::new();
        for prompt in &prompts {
            let mut run = models.on_cpu();
            let last = prompt.len() - 1;
            run.run(vec![span(0, 0, &prompt[..last], None)]);
            alone.push(top(&run.run(vec![span(0, last, &prompt[last..], Some(greedy()))])).to_vec());
        }
        for (number, prompt) in prompts.iter().enumerate() {
            run.run(vec![span(number, 0, &prompt[..prompt.len() - 1], None)]);
        }
        let decode = |(number, prompt): (usize, &Vec<Token>)| {
            let last = prompt.len() - 1;
            span(number, last, &prompt[last..], Some(greedy()))
        };
        let together = run.run(prompts.iter().enumerate().map(decode).collect());
        let sampled = together.sampled.expect("the step ran");
        assert_eq!(sampled.len(), MANY);
        for (sampled, alone) in sampled.iter().zip(&alone) {
            let found = &sampled.logprobs.as_ref().expect("asked for").top;
            for (token, logprob) in alone {
                if let Some((_, other)) = found.iter().find(|(other, _)| other == token) {
                    assert!((logprob - other).abs() <= NEAR, "{family}, {:?}: token {token}", sampled.key);
                }
            }
            if alone[0].1 - alone[1].1 > 2.0 * NEAR {
                assert_eq!(found[0].0, alone[0].0, "{family}, {:?}: the most probable token", sampled.key);
            }
        }
    }
}

#[test]
fn fast_kernels_leave_quantised_weights_to_our_own() {
    let Some(models) = Models::quantised(false, &|_| Blocks::Q4_0) else { return };
    let tokens = models.tokens(60, 3);
    let (mut fast, mut exact) = (models.on_card_fast(MANY), models.on_card());
    assert_eq!(top(&fast.prompt(1, &tokens, &[])), top(&exact.prompt(1, &tokens, &[])));
}

#[test]
fn steps_in_flight_sample_what_single_steps_do() {
    let Some(models) = Models::random("llama") else { return };
    let tokens = models.tokens(20, 3);
    let params = SamplingParams { temperature: 0.8, top_p: 0.9, top_k: 50, ..SamplingParams::default() };
    let text = |in_flight: bool| {
        let mut run = models.on_card();
        let mut text = Vec::new();
        run.submit(vec![span(1, 0, &tokens, Some(params.clone()))]);
        for index in 1..12 {
            if !in_flight {
                text.push(run.end().sampled.expect("a step")[0].token);
            }
            let mut next = span(1, tokens.len() + index - 1, &[0], Some(params.clone()));
            next.inputs = vec![if in_flight { Input::Sampled(0) } else { Input::Token(text[index - 1]) }];
            next.samples[0].index = index as u32;
            run.submit(vec![next]);
            if in_flight {
                text.push(run.end().sampled.expect("a step")[0].token);
            }
        }
        text.push(run.end().sampled.expect("a step")[0].token);
        text
    };
    assert_eq!(text(true), text(false));
}

#[test]
fn a_device_gives_all_that_a_plan_can_ask_for() {
    let Some(models) = Models::random("qwen3") else { return };
    let (mut there, mut here) = (models.on_card(), models.on_cpu());
    let tokens = models.tokens(50, 4);
    let scores: Vec<Score> =
        (10..40).step_by(10).map(|row| Score { row, token: tokens[row as usize + 1], top: 3 }).collect();
    let wanted = Span { scores, hidden: Some(HiddenRows::All), ..span(1, 0, &tokens, Some(greedy())) };
    let (found, exact) = (there.run(vec![wanted.clone()]), here.run(vec![wanted]));
    assert_eq!(found.scored.len(), 3);
    for (found, exact) in found.scored.iter().zip(&exact.scored) {
        assert!((found.logprob - exact.logprob).abs() < NEAR, "{found:?}, not {exact:?}");
        assert_eq!(found.top.len(), 3);
    }
    let (found, exact) = (found.hidden[0].mean(true), exact.hidden[0].mean(true));
    let cosine: f32 = found.iter().zip(&exact).map(|(a, b)| a * b).sum();
    assert!(cosine > 0.999, "hidden states at an angle whose cosine is {cosine}");
    // A mask that comes after the plan leaves one token.
    let mut masked = span(1, 50, &[7], Some(greedy()));
    masked.samples[0].masked = true;
    there.submit(vec![masked]);
    let vocab = models.files.spec.vocab;
    let mask = Mask { sample: 0, allowed: Arc::new(TokenSet::of(vocab, [123])) };
    there.device.masks(StepId(there.step), vec![mask]).expect("it is waited for");
    assert_eq!(there.end().sampled.expect("a step")[0].token, 123);
    // A mask that allows nothing fails its span alone.
    let mut masked = span(1, 51, &[123], Some(greedy()));
    masked.samples[0].masked = true;
    there.submit(vec![masked, span(2, 0, &tokens, Some(greedy()))]);
    let mask = Mask { sample: 0, allowed: Arc::new(TokenSet::none(vocab)) };
    there.device.masks(StepId(there.step), vec![mask]).expect("it is waited for");
    let output = there.end();
    assert_eq!((output.failed.len(), output.failed[0].span), (1, 0), "{:?}", output.failed);
    assert_eq!(output.sampled.expect("a step").len(), 1);
}

#[test]
fn penalties_go_by_what_a_slot_has_seen() {
    let Some(models) = Models::random("llama") else { return };
    let (mut there, mut here) = (models.on_card(), models.on_cpu());
    let prompt = models.tokens(30, 5);
    let params = SamplingParams { repetition_penalty: 30.0, frequency_penalty: 5.0, ..greedy() };
    for run in [&mut there, &mut here] {
        run.step += 1;
        let first = span(3, 0, &prompt, Some(params.clone()));
        let mut plan = StepPlan::opening(StepId(run.step), Vec::new(), [(first, run.tables(3))]);
        let tokens = Tokens::new(prompt.clone().into(), &[]);
        plan.changes.push(SlotChange::History { slot: SlotId(3), tokens });
        run.device.submit(Arc::new(plan)).expect("the plan is sound");
    }
    let (found, wanted) = (there.end(), here.end());
    let mut token = wanted.sampled.as_ref().expect("a step")[0].token;
    assert!(!prompt.contains(&token), "what is penalised so is not repeated");
    assert_eq!(found.sampled.as_ref().expect("a step")[0].token, token);
    let mut seen = prompt.clone();
    for index in 0..4 {
        seen.push(token);
        for run in [&mut there, &mut here] {
            run.step += 1;
            let slot = SlotId(3);
            let mut next = span(3, 30 + index, &[token], Some(params.clone()));
            next.samples[0].index = index as u32 + 1;
            let changes = vec![SlotChange::Tokens { slot, tokens: vec![token] }];
            let plan = StepPlan { step: StepId(run.step), changes, copies: Vec::new(), spans: vec![next] };
            run.device.submit(Arc::new(plan)).expect("the plan is sound");
        }
        let (found, wanted) = (there.end(), here.end());
        token = found.sampled.expect("a step")[0].token;
        assert!(!seen.contains(&token), "{token} was seen");
        assert_eq!(token, wanted.sampled.expect("a step")[0].token);
    }
}
