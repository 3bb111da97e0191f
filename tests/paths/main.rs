//! Correctness is tokens: every path gives the same text as the plain one, on the real CPU engine. The plain one is a
//! decode worker that computes a prompt alone, in one chunk, on one thread.

use domain::session::{Assignment, Holder};
use domain::{Dtype, Grammar, Incarnation, SamplingParams, Token, WorkerId};
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa, Pinning};
use engine::device::STEPS_IN_FLIGHT_MAX;
use engine::grammar::Grammars;
use engine::models::ModelFiles;
use engine::random::RandomSpec;
use engine::text::{SpecialTokens, Tokenizer};
use std::sync::Arc;
use tests::cluster::{Asked, Cluster, DECODE, Options, PREFILL, prompt};

const BLOCK: u32 = 16;
/// Output tokens of each request.
const OUTPUT: u32 = 24;
/// Tokens of a sequence that is to move while it runs, however late the test is in seeing it run.
const LONG: u32 = 48 * OUTPUT;

/// A grammar of texts of small letters and digits in turns, which may go on for ever.
const LETTERS: &str = "start: (/[a-z]{1,3}/ /[0-9]{1,3}/)+ /[a-z]+/\n";

struct Model {
    weights: Arc<CpuModel>,
    files: ModelFiles,
    /// Whether pools are as a device's, which the host may not touch.
    guarded: bool,
    /// Steps that a device has at once.
    steps_in_flight: usize,
    grammars: Arc<Grammars>,
    dir: tempfile::TempDir,
}

impl Model {
    fn random(family: &str, shape: &str, dtype: Dtype) -> Self {
        let dir = tempfile::TempDir::new().expect("a directory");
        let spec = RandomSpec::named(family, shape, 5, Some(dtype)).expect("a named shape");
        spec.write(dir.path(), &mut |_, _| ()).expect("the checkpoint is written");
        let files = ModelFiles::load(dir.path()).expect("the checkpoint loads");
        let weights = CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| ()).expect("the weights pack");
        let tokenizer = Tokenizer::open(dir.path()).expect("it has a tokenizer");
        let grammars = Arc::new(Grammars::new(&tokenizer, files.spec.vocab));
        let (guarded, steps_in_flight) = (false, STEPS_IN_FLIGHT_MAX);
        Self { weights: Arc::new(weights), files, guarded, steps_in_flight, grammars, dir }
    }

    /// The same model, on pools that end the test if anybody but the engine and their copier touches them.
    fn guarded(self) -> Self {
        Self { guarded: true, ..self }
    }

    /// The same model, whose workers plan a step when the one before has ended.
    fn one_step_in_flight(self) -> Self {
        Self { steps_in_flight: 1, ..self }
    }

    fn options(&self) -> Options {
        let layout = self.files.spec.kv_layout(self.files.spec.dtype, Some(BLOCK));
        let grammars = Some(self.grammars.clone());
        Options { steps_in_flight: self.steps_in_flight, grammars, ..Options::roomy(layout) }
    }

    fn cluster(&self, options: &Options, threads: usize) -> Cluster {
        Cluster::new(options, |id| {
            let (layout, limits) = (options.layout.clone(), options.limits(id));
            let config =
                CpuConfig { layout, limits, threads, pinning: Pinning::Off, guarded: self.guarded, isa: Isa::best() };
            Box::new(CpuDevice::new(self.weights.clone(), config).expect("a device"))
        })
    }

    /// Prompts of lengths that are multiples of nothing, greedy and sampled in turns, every fifth by a grammar that
    /// never ends.
    fn requests(&self, count: u64) -> Vec<Asked> {
        let vocab = self.files.spec.vocab as u32;
        let request = |i: u64| {
            let tokens = prompt(19 + i as u32 * 53 % 190, i as u32).into_iter().map(|token| token % vocab).collect();
            let greedy = Asked::new(i, tokens, OUTPUT);
            let params = match i % 3 {
                0 => greedy.params.clone(),
                1 => SamplingParams { temperature: 0.9, top_p: 0.9, top_k: 60, ..greedy.params.clone() },
                _ => SamplingParams {
                    temperature: 1.2,
                    min_p: 0.02,
                    repetition_penalty: 1.1,
                    frequency_penalty: 0.3,
                    presence_penalty: 0.2,
                    ..greedy.params.clone()
                },
            };
            let grammar = (i % 5 == 3).then(|| Grammar::new(LETTERS.to_owned()).expect("it is short"));
            Asked { seed: i * 7919, params: SamplingParams { grammar, ..params }, ..greedy }
        };
        (0..count).map(request).collect()
    }

    /// The plain path.
    fn plain(&self, requests: &[Asked]) -> Vec<Vec<Token>> {
        let mut cluster = self.cluster(&Options { chunk: 512, ..self.options() }, 1);
        let text = |request: &Asked| {
            cluster.submit(DECODE, request, Assignment::Whole);
            cluster.wait_end(request);
            let text = cluster.text(request, 0);
            assert_eq!(text.len(), OUTPUT as usize);
            // The next one finds nothing of it.
            cluster = self.cluster(&Options { chunk: 512, ..self.options() }, 1);
            text
        };
        requests.iter().map(text).collect()
    }
}

/// Sends all requests at once and compares.
fn check(cluster: &mut Cluster, what: &str, requests: &[Asked], plain: &[Vec<Token>], send: impl Fn(&Cluster, &Asked)) {
    requests.iter().for_each(|request| send(cluster, request));
    for (request, plain) in requests.iter().zip(plain) {
        cluster.wait_end(request);
        assert!(cluster.failures.is_empty(), "{what}: {:?}", cluster.failures);
        assert_eq!(&cluster.text(request, 0), plain, "{what}: request {}", request.id);
    }
    cluster.wait_idle();
}

/// The same requests under other ids.
fn again(requests: &[Asked], offset: u64) -> Vec<Asked> {
    requests.iter().map(|request| Asked { id: request.id + offset, ..request.clone() }).collect()
}

fn whole(cluster: &Cluster, request: &Asked) {
    cluster.submit(DECODE, request, Assignment::Whole);
}

fn check_model(model: &Model) {
    check_paths(model, &[(16, 1), (64, 2), (512, 3)], &[1, 2, 16]);
}

/// With these tokens of chunks and numbers of threads, and so many requests at once.
fn check_paths(model: &Model, shapes: &[(u32, usize)], at_once: &[usize]) {
    let requests = model.requests(at_once.iter().copied().max().unwrap_or(0) as u64);
    let plain = model.plain(&requests);
    assert!(plain.iter().any(|text| text != &plain[0]), "the texts differ between requests");
    for &(chunk, threads) in shapes {
        for &together in at_once {
            let what = |path: &str| format!("{path}, chunks of {chunk}, {threads} threads, {together} at once");
            let options = Options { chunk, ..model.options() };
            let (requests, plain) = (&requests[..together], &plain[..together]);
            let mut cluster = model.cluster(&options, threads);
            check(&mut cluster, &what("handed off"), requests, plain, Cluster::hand_off);
            check(&mut cluster, &what("handed off, cached on both"), &again(requests, 100), plain, Cluster::hand_off);
            check(&mut cluster, &what("whole, cached"), &again(requests, 200), plain, whole);

            let mut cluster = model.cluster(&options, threads);
            check(&mut cluster, &what("whole"), requests, plain, whole);
            check(&mut cluster, &what("handed off, cached on D"), &again(requests, 100), plain, Cluster::hand_off);

            // P alone computes the prompts (their single token ends there), then hands them off from its cache.
            let mut cluster = model.cluster(&options, threads);
            let single =
                |request: Asked| Asked { params: SamplingParams { max_tokens: 1, ..request.params }, ..request };
            let singles: Vec<_> = again(requests, 300).into_iter().map(single).collect();
            let firsts: Vec<_> = plain.iter().map(|text| text[..1].to_vec()).collect();
            check(&mut cluster, &what("first tokens"), &singles, &firsts, |cluster, request| {
                cluster.submit(PREFILL, request, Assignment::Prefill { decode: DECODE });
            });
            check(&mut cluster, &what("handed off, cached on P"), requests, plain, Cluster::hand_off);
        }
    }
    // Running sequences move to another decode worker.
    let options = Options { pairs: 2, ..model.options() };
    let mut cluster = model.cluster(&options, 1);
    let long = |request: &Asked| Asked {
        params: SamplingParams { max_tokens: LONG, ..request.params.clone() },
        ..request.clone()
    };
    for request in &requests[..4] {
        let request = long(request);
        let undisturbed = Asked { id: request.id + 1000, ..request.clone() };
        cluster.submit(DECODE, &undisturbed, Assignment::Whole);
        cluster.wait_end(&undisturbed);
        cluster.hand_off(&request);
        let key = request.key(0);
        cluster.until("a few tokens", |cluster| cluster.rows.get(&key).is_some_and(|rows| rows.len() > 3));
        let moved = cluster.migrate(&request, DECODE, WorkerId(3));
        let (text, there) = cluster.moved_text(&request, &moved);
        assert_eq!(text, cluster.text(&undisturbed, 0), "request {} moved", request.id);
        assert!(there > 0, "request {} ended before it moved", request.id);
        cluster.wait_idle();
    }
    // Too few blocks for all to run: sequences are preempted and recomputed.
    let longest = requests.iter().map(|request| request.prompt.len() as u32 + OUTPUT).max().unwrap_or(0);
    let blocks = longest.div_ceil(BLOCK) + 8;
    let options = Options { blocks: [512, blocks], reserve: 1, chunk: 64, ..model.options() };
    let mut cluster = model.cluster(&options, 2);
    check(&mut cluster, "whole, with few blocks", &requests, &plain, whole);
    check(&mut cluster, "handed off, with few blocks", &again(&requests, 100), &plain, Cluster::hand_off);
}

/// The next turn of a conversation comes to P, and all KV of the one before lies in D's memory, none of it on a device.
fn check_asked(model: &Model) {
    let options = Options { host_bytes: 16 << 20, ..model.options() };
    for request in &model.requests(4)[1..] {
        let mut cluster = model.cluster(&options, 2);
        // They have heard of each other. P has not measured how fast it is: waiting seems worth its while.
        let hello = Asked { prompt: request.prompt[..10].to_vec(), ..Asked::new(100, Vec::new(), 2) };
        cluster.hand_off(&hello);
        cluster.wait_end(&hello);
        cluster.submit(DECODE, request, Assignment::Whole);
        cluster.wait_end(request);
        let said = [request.prompt.clone(), cluster.text(request, 0)].concat();
        cluster.until("all of it to be parked", |cluster| cluster.park(DECODE, "", &said) == 0);

        // The last token was never computed with.
        let tokens = (said.len() as u32 - 1) / BLOCK * BLOCK;
        let turn = [said, request.prompt[..7].to_vec()].concat();
        let next = Asked { id: 200, prompt: turn, ..request.clone() };
        let plain = model.plain(std::slice::from_ref(&next));
        let holder = Some(Holder { worker: DECODE, incarnation: Incarnation(1), tokens });
        let next = [Asked { holder, ..next }];
        check(&mut cluster, "asked for, from another one's memory", &next, &plain, Cluster::hand_off);
        let rows = cluster.rows[&next[0].key(0)].iter();
        assert_eq!(rows.map(|(_, row)| row.cached_tokens).max(), Some(tokens), "P computed what D had");
    }
}

/// What left the device for these places comes back as it was.
fn check_tiers(model: &Model) {
    let requests = model.requests(4);
    let plain = model.plain(&requests);
    let disk = tempfile::TempDir::new().expect("a directory");
    // Room for one sequence at a time, so that the next ones evict what the first ones left.
    let longest = requests.iter().map(|request| request.prompt.len() as u32 + OUTPUT).max().unwrap_or(0);
    let options = Options {
        blocks: [longest.div_ceil(BLOCK) + 8; 2],
        reserve: 1,
        host_bytes: 1 << 20,
        disk: Some(disk.path().to_owned()),
        ..model.options()
    };
    let mut cluster = model.cluster(&options, 2);
    for round in 0..3 {
        check(&mut cluster, "through tiers", &again(&requests, 100 * round), &plain, Cluster::hand_off);
    }
    let found: u32 = cluster.rows.values().flatten().map(|(_, row)| row.cached_tokens).sum();
    assert!(found > 0, "nothing came back");
}

#[test]
fn a_text_of_a_grammar_is_one_on_every_path() {
    let model = Model::random("llama", "tiny", Dtype::Bf16);
    let requests = model.requests(14);
    let texts = model.plain(&requests);
    let tokenizer = Tokenizer::open(model.dir.path()).expect("it has a tokenizer");
    let is_of = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    for (request, text) in requests.iter().zip(&texts) {
        let text = tokenizer.decode(text, SpecialTokens::Shown);
        assert_eq!(request.params.grammar.is_some(), is_of(&text), "request {}: {text:?}", request.id);
    }
}

#[test]
fn one_step_in_flight_on_every_path() {
    check_paths(&Model::random("mistral", "tiny-window", Dtype::Bf16).one_step_in_flight(), &[(64, 2)], &[4]);
}

#[test]
fn guarded_pools_on_every_path() {
    check_paths(&Model::random("llama", "tiny", Dtype::Bf16).guarded(), &[(64, 2)], &[4]);
}

#[test]
fn guarded_pools_that_others_ask() {
    check_asked(&Model::random("mistral", "tiny-window", Dtype::F32).guarded());
}

#[test]
fn guarded_pools_and_their_tiers() {
    check_tiers(&Model::random("llama", "tiny", Dtype::F32).guarded());
}

#[test]
fn what_left_the_device_of_another_worker() {
    check_asked(&Model::random("llama", "tiny", Dtype::Bf16));
    check_asked(&Model::random("mistral", "tiny-window", Dtype::F32));
}

#[test]
fn llama_bf16() {
    check_model(&Model::random("llama", "tiny", Dtype::Bf16));
}

#[test]
fn mistral_with_a_window_f32() {
    check_model(&Model::random("mistral", "tiny-window", Dtype::F32));
}

#[test]
fn qwen2_on_every_path() {
    check_model(&Model::random("qwen2", "tiny", Dtype::Bf16));
}

#[test]
fn qwen3_f16() {
    check_model(&Model::random("qwen3", "tiny-wide", Dtype::F16));
}

#[test]
fn gemma2_with_windows_bf16() {
    check_model(&Model::random("gemma2", "tiny-window", Dtype::Bf16));
}

#[test]
fn gemma3_with_windows_f32() {
    check_model(&Model::random("gemma3_text", "tiny-window", Dtype::F32));
}

#[test]
fn phi3_with_scaled_rotation_bf16() {
    check_model(&Model::random("phi3", "tiny-longrope", Dtype::Bf16));
}

#[test]
fn ministral3_with_growing_queries_f32() {
    check_model(&Model::random("ministral3", "tiny-yarn", Dtype::F32));
}

#[test]
fn olmo2_f32() {
    check_model(&Model::random("olmo2", "tiny-wide", Dtype::F32));
}

#[test]
fn granite_bf16() {
    check_model(&Model::random("granite", "tiny-bias", Dtype::Bf16));
}
