//! A whole run on a tiny random model: what is counted adds up, and all forms of the report say it.

use bench_engine::{Bench, BenchError, Cut, Report, Settings};
use domain::Dtype;
use engine::cpu::Pinning;
use engine::models::ModelFiles;
use engine::random::RandomSpec;

fn settings() -> Settings {
    Settings {
        card: None,
        threads: 2,
        pinning: Pinning::Auto { alone: true },
        prompts: vec![16, 600],
        batches: vec![1, 3],
        contexts: vec![0, 20],
        mixed: vec![],
        cut: Cut { chunk: 512, decoded: 32 },
        samples: 2,
    }
}

fn open(family: &str, settings: &Settings) -> Result<Bench, BenchError> {
    let dir = tempfile::tempdir().expect("a directory");
    let spec = RandomSpec::named(family, "tiny", 1, Some(Dtype::Bf16)).expect("the shape exists");
    spec.write(dir.path(), &mut |_, _| ()).expect("it is written");
    let files = ModelFiles::load(dir.path()).expect("it is a model");
    Bench::open(&files, "tiny", settings, &mut |_| ())
}

fn measure(family: &str) -> Report {
    let (mut parts, mut total) = (0, 0);
    let report = open(family, &settings())
        .expect("it opens")
        .measure(&mut |progress| {
            assert_eq!(progress.done, parts, "{progress:?}");
            (parts, total) = (parts + 1, progress.total);
        })
        .expect("it runs");
    assert_eq!(parts, total, "every part is told");
    report
}

#[test]
fn works_and_kernels_add_up() {
    let report = measure("llama");
    let names: Vec<&str> = report.works.iter().map(|work| work.work.as_str()).collect();
    assert_eq!(
        names,
        [
            "prompt of 16",
            "prompt of 600",
            "decode, batch 1, empty context",
            "decode, batch 3, empty context",
            "decode, batch 1 after 20",
            "decode, batch 3 after 20"
        ]
    );
    assert_eq!(report.weights, "BF16");
    // Hidden 64, 4 and 2 heads of 16, feed-forward 160, 2 layers, vocabulary 512, outputs padded to 64, inputs to 32.
    let layer = 64 * 128 + 64 * 64 + 64 * 320 + 160 * 64;
    assert_eq!(report.weight_bytes, 2 * (2 * layer + 512 * 64));
    for work in &report.works {
        let spread = work.tokens_per_s;
        assert!(0.0 < spread.min && spread.min <= spread.median && spread.median <= spread.max, "{}", work.work);
        assert_eq!(work.samples.len(), 2);
        assert!((0.0..1.0).contains(&work.outside_kernels), "{}: {}", work.work, work.outside_kernels);
        let shares: f64 = work.kernels.iter().map(|kernel| kernel.share_of_time).sum();
        assert!(shares > 0.0 && shares <= 1.0, "{}: kernels take {shares} of the time", work.work);
        // A step of many rows is computed in parts of 256; of a prompt of 600 the chunks have 512 and 88.
        let (steps, parts) = match work.prompt {
            Some(16) => (1, 1),
            Some(600) => (2, 3),
            _ => (32, 32),
        };
        let calls = |name: &str| work.kernels.iter().find(|it| it.kernel == name).map(|kernel| kernel.calls);
        assert_eq!(calls("attention"), Some(2 * parts), "{}", work.work);
        assert_eq!(calls("linear: gate and up"), Some(2 * parts), "{}", work.work);
        assert_eq!(calls("linear: logits"), Some(steps), "{}", work.work);
    }
}

#[test]
fn operations_and_bytes_are_those_of_the_shape() {
    let report = measure("llama");
    let work = report.works.iter().find(|work| work.work == "decode, batch 3 after 20").expect("it was done");
    let check = |name: &str, operations: f64, bytes: f64| {
        let kernel = work.kernels.iter().find(|kernel| kernel.kernel == name).expect(name);
        let rates = kernel.rates.expect(name);
        let seconds = kernel.ms / 1e3;
        assert!((rates.gflop_per_s * 1e9 * seconds / operations - 1.0).abs() < 1e-6, "{name}: {rates:?}");
        assert!((rates.gb_per_s * 1e9 * seconds / bytes - 1.0).abs() < 1e-6, "{name}: {rates:?}");
    };
    let steps = 32.0;
    check("linear: logits", steps * 3.0 * 2.0 * 512.0 * 64.0, steps * 2.0 * 512.0 * 64.0);
    check("linear: gate and up", steps * 2.0 * 3.0 * 2.0 * 320.0 * 64.0, steps * 2.0 * 2.0 * 320.0 * 64.0);
    // Positions 20 to 51 see 21 to 52 keys: 1,168 for each sequence and layer.
    let keys = 3.0 * 2.0 * 1168.0;
    check("attention", keys * 4.0 * 4.0 * 16.0, keys * 2.0 * 2.0 * 16.0 * 2.0);
}

#[test]
fn models_with_windows_and_tied_embeddings_are_measured_too() {
    assert_eq!(measure("gemma2").works.len(), 6);
}

#[test]
fn all_forms_say_the_same() {
    let report = measure("qwen3");
    let text = report.to_string();
    let json = serde_json::to_value(&report).expect("it has string keys");
    let html = bench_engine::page::html(&report);
    for work in &report.works {
        assert!(text.contains(&work.work) && html.contains(&work.work), "{}", work.work);
    }
    assert!(text.contains("norms of queries and keys") && html.contains("norms of queries and keys"));
    assert_eq!(json["works"][1]["prompt"], 600);
    assert_eq!(json["works"][5]["batch"], 3);
    assert!(json["limits"]["read_gb_per_s"].as_f64() > Some(0.0));
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("NaN"), "{html}");
}

#[test]
fn what_the_model_cannot_do_is_refused_before_it_runs() {
    let error = open("llama", &Settings { prompts: vec![4096], ..settings() }).err().expect("the context has 2048");
    assert!(error.to_string().contains("prompt of 4096"), "{error}");
    let error = open("llama", &Settings { threads: 0, ..settings() }).err().expect("nobody computes");
    assert!(error.to_string().contains("0 threads"), "{error}");
}
