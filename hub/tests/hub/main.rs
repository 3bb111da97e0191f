//! Pulls against a hub on this machine: what comes, what breaks, and what is said of it.

mod server;

use hub::{Hub, HubError, ModelName, Notice, Preview};
use server::{FakeHub, Fault};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const CONFIG: &[u8] = br#"{"model_type": "llama"}"#;

struct Rig {
    hub: FakeHub,
    home: TempDir,
    weights: Vec<u8>,
}

impl Rig {
    /// A hub with a model of two small files and weights of some megabytes, and an empty cache.
    fn new() -> Self {
        let weights: Vec<u8> =
            (0..3_500_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let hub = FakeHub::start(&[
            ("config.json", CONFIG),
            ("tokenizer.json", b"{}"),
            ("README.md", b"not read"),
            ("model.safetensors", &weights),
        ]);
        Self { hub, home: TempDir::new().expect("a folder"), weights }
    }

    fn with(&self, more: &[(&str, &str)]) -> Hub {
        let variable = |name: &str| match name {
            "HF_HOME" => Some(self.home.path().to_string_lossy().into_owned()),
            "HF_ENDPOINT" if !more.iter().any(|(key, _)| *key == name) => Some(self.hub.endpoint()),
            _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
        };
        Hub::new(variable, Duration::from_millis(1)).expect("a hub")
    }

    fn pull(&self, name: &str) -> Result<PathBuf, HubError> {
        self.with(&[]).pull(&model(name), all, &mut |_| ())
    }

    fn repo(&self) -> PathBuf {
        self.home.path().join("hub/models--o--n")
    }

    /// The one blob that is not complete.
    fn incomplete(&self) -> Option<PathBuf> {
        let blobs = fs::read_dir(self.repo().join("blobs")).into_iter().flatten().flatten();
        blobs.map(|blob| blob.path()).find(|path| path.extension().is_some_and(|end| end == "incomplete"))
    }
}

/// A GGUF file that is longer than what a preview fetches of it.
fn long_gguf() -> Vec<u8> {
    (0..17_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Approves of every model.
fn all(_: &Preview) -> Result<(), HubError> {
    Ok(())
}

fn model(name: &str) -> ModelName {
    name.parse().expect("a name")
}

fn ranges(requests: &[server::SeenRequest]) -> Vec<Option<&str>> {
    requests.iter().map(|request| request.headers.get("range").map(String::as_str)).collect()
}

#[test]
fn a_model_comes_once_and_lies_where_other_tools_look() {
    let rig = Rig::new();
    let hub = rig.with(&[("HF_TOKEN", "secret")]);
    assert_eq!(hub.cached(&model("o/n")), None);
    let mut heard = Vec::new();
    let folder = hub
        .pull(&model("o/n"), all, &mut |notice| match notice {
            Notice::Found { files, bytes, missing } => heard.push((files as u64, bytes, missing)),
            Notice::Bytes(done) => heard.push((0, done, 0)),
            other => panic!("{other:?}"),
        })
        .expect("pulled");
    let total = rig.weights.len() as u64 + CONFIG.len() as u64 + 2;
    assert_eq!((heard.first(), heard.last()), (Some(&(3, total, total)), Some(&(0, total, 0))));
    assert!(heard[1..].windows(2).all(|pair| pair[0].1 <= pair[1].1), "progress only rises");

    let commit = "a".repeat(40);
    assert_eq!(folder, rig.repo().join("snapshots").join(&commit));
    assert_eq!(fs::read_to_string(rig.repo().join("refs/main")).expect("named"), commit);
    assert_eq!(fs::read(folder.join("model.safetensors")).expect("read"), rig.weights);
    assert_eq!(fs::read(folder.join("config.json")).expect("read"), CONFIG);
    assert!(fs::read_link(folder.join("config.json")).expect("a link").starts_with("../../blobs"));
    assert!(!folder.join("README.md").exists(), "it is not read");
    assert_eq!(rig.incomplete(), None);

    let requests = rig.hub.requests();
    let (store, others): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.path.starts_with("/store/"));
    assert!(others.iter().all(|request| request.headers["authorization"] == "Bearer secret"), "{others:?}");
    assert!(store.iter().all(|request| !request.headers.contains_key("authorization")), "the store is another host");

    assert_eq!(hub.cached(&model("o/n")), Some(folder.clone()));
    assert_eq!(rig.hub.requests().len(), 0, "what is here is used without a word");
    assert_eq!(rig.pull("o/n").expect("pulled"), folder);
    assert_eq!(rig.hub.transfers().len(), 0, "nothing comes twice");
}

#[test]
fn a_transfer_that_breaks_goes_on_where_it_stopped() {
    let rig = Rig::new();
    rig.hub.fail([Fault::Break(0), Fault::Break(5), Fault::Break(100_000), Fault::Break(1_500_000)]);
    let folder = rig.pull("o/n").expect("pulled");
    assert_eq!(fs::read(folder.join("model.safetensors")).expect("read"), rig.weights);
    let requests = rig.hub.transfers();
    let weights: Vec<_> = requests.into_iter().filter(|request| request.path.starts_with("/store/")).collect();
    assert_eq!(
        ranges(&weights),
        [None, None, Some("bytes=5-"), Some("bytes=100005-"), Some("bytes=1600005-")],
        "it goes on each time"
    );
}

#[test]
fn the_next_run_goes_on_where_the_last_one_stopped() {
    let rig = Rig::new();
    rig.pull("o/n").expect("pulled");
    let blob =
        fs::canonicalize(rig.repo().join("snapshots").join("a".repeat(40)).join("model.safetensors")).expect("there");
    fs::write(blob.with_extension("incomplete"), &rig.weights[..2_000_000]).expect("written");
    fs::remove_file(&blob).expect("removed");
    rig.hub.requests();
    assert_eq!(rig.with(&[]).cached(&model("o/n")), None, "a model without weights is not complete");

    let folder = rig.pull("o/n").expect("pulled");
    assert_eq!(fs::read(folder.join("model.safetensors")).expect("read"), rig.weights);
    assert_eq!(ranges(&rig.hub.transfers()), [Some("bytes=2000000-")]);
}

#[test]
fn a_hub_without_ranges_is_read_from_the_beginning() {
    let rig = Rig::new();
    rig.hub.fail([Fault::WholeFile, Fault::WholeFile, Fault::Break(1_000_000), Fault::WholeFile]);
    let folder = rig.pull("o/n").expect("pulled");
    assert_eq!(fs::read(folder.join("model.safetensors")).expect("read"), rig.weights);
}

#[test]
fn other_bytes_never_get_the_name() {
    let rig = Rig::new();
    rig.hub.fail([Fault::OtherBytes]);
    rig.pull("o/n").expect("the second try is right");
    let rig = Rig::new();
    rig.hub.fail(vec![Fault::OtherBytes; 8]);
    let error = rig.pull("o/n").expect_err("never right");
    assert!(matches!(error, HubError::Checksum { .. }), "{error}");
    assert_eq!(rig.with(&[]).cached(&model("o/n")), None);
    assert_eq!(rig.incomplete(), None, "nothing of it is kept");
}

#[test]
fn a_hub_that_is_busy_is_asked_again() {
    let rig = Rig::new();
    rig.hub.refuse([Fault::Status(429, "retry-after: 0\r\n"), Fault::Status(503, "")]);
    rig.hub.fail([Fault::Status(500, "")]);
    let mut waits = Vec::new();
    let pulled = rig.with(&[]).pull(&model("o/n"), all, &mut |notice| {
        if let Notice::Waiting { reason, .. } = notice {
            waits.push(reason.to_owned());
        }
    });
    pulled.expect("pulled");
    assert_eq!(waits, ["status 429", "status 503", "status 500"]);
    let rig = Rig::new();
    rig.hub.refuse(vec![Fault::Status(503, ""); 10]);
    let error = rig.pull("o/n").expect_err("it never answers").to_string();
    assert!(error.contains("status 503 (6 tries)"), "{error}");
}

#[test]
fn a_refusal_says_what_helps() {
    let rig = Rig::new();
    let refused = |status, headers, token: &[(&str, &str)]| {
        rig.hub.refuse([Fault::Status(status, headers)]);
        rig.with(token).pull(&model("o/n"), all, &mut |_| ()).expect_err("refused").to_string()
    };
    let token = [("HF_TOKEN", "wrong")];
    assert!(refused(401, "", &[]).ends_with("or it is private: check the name, or set HF_TOKEN"));
    assert!(refused(404, "", &[]).contains("knows no o/n"));
    assert!(refused(401, "", &token).ends_with("check HF_TOKEN"));
    let gated = refused(403, "x-error-code: GatedRepo\r\n", &token);
    assert!(gated.contains("gated: ask for access at http://") && gated.contains("/o/n"), "{gated}");
    assert!(refused(418, "", &[]).contains("status 418"));
    let gone = rig.with(&[("HF_ENDPOINT", "http://127.0.0.1:1")]).pull(&model("o/n"), all, &mut |_| ());
    let gone = gone.expect_err("nobody listens").to_string();
    assert!(gone.starts_with("http://127.0.0.1:1 is not reached (3 tries): "), "{gone}");
}

#[test]
fn without_network_what_is_here_is_enough() {
    let rig = Rig::new();
    let offline = rig.with(&[("HF_HUB_OFFLINE", "1")]);
    let error = offline.pull(&model("o/n"), all, &mut |_| ()).expect_err("nothing is here").to_string();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    let folder = rig.pull("o/n").expect("pulled");
    rig.hub.requests();
    assert_eq!(offline.pull(&model("o/n"), all, &mut |_| ()).expect("it is here"), folder);
    assert_eq!(rig.hub.requests().len(), 0);
}

#[test]
fn a_revision_that_moved_brings_only_what_changed() {
    let rig = Rig::new();
    let old = rig.pull("o/n").expect("pulled");
    rig.hub.publish(&"b".repeat(40), &[("config.json", b"[]"), ("model.safetensors", &rig.weights)]);
    rig.hub.requests();
    let new = rig.pull("o/n").expect("pulled");
    assert_eq!(rig.hub.transfers().len(), 1);
    assert_ne!(old, new);
    assert_eq!(fs::read(new.join("config.json")).expect("read"), b"[]");
    assert_eq!(fs::read(old.join("config.json")).expect("read"), CONFIG, "who serves the old one keeps it");
    assert_eq!(rig.with(&[]).cached(&model("o/n")), Some(new));
    assert_eq!(rig.with(&[]).cached(&model(&format!("o/n@{}", "a".repeat(40)))), Some(old));
}

#[test]
fn two_that_pull_at_once_fetch_each_file_once() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4).map(|_| scope.spawn(|| rig.pull("o/n").expect("pulled"))).collect();
        pulls.into_iter().for_each(|pull| drop(pull.join().expect("no panic")));
    });
    let mut paths: Vec<_> = rig.hub.transfers().into_iter().map(|request| request.path).collect();
    paths.sort();
    let mut once = paths.clone();
    once.dedup();
    assert_eq!(paths, once);
}

#[test]
fn gguf_models_are_pulled_listed_and_removed() {
    let rig = Rig::new();
    rig.hub.publish(
        &"c".repeat(40),
        &[
            ("n-Q4_K_M-00001-of-00002.gguf", b"one"),
            ("n-Q4_K_M-00002-of-00002.gguf", b"two"),
            ("n-Q8_0.gguf", b"eight"),
        ],
    );
    let error = rig.pull("o/n").expect_err("which?").to_string();
    assert!(error.contains("o/n:n-Q4_K_M-00001-of-00002.gguf"), "{error}");
    let file = rig.pull("o/n:q4_k_m").expect("pulled");
    assert_eq!(file.file_name(), Some("n-Q4_K_M-00001-of-00002.gguf".as_ref()));
    assert_eq!(fs::read(file.with_file_name("n-Q4_K_M-00002-of-00002.gguf")).expect("both parts"), b"two");
    let hub = rig.with(&[]);
    assert_eq!(hub.cached(&model("o/n:q4_k_m")), Some(file));
    assert_eq!(hub.cached(&model("o/n:q8_0")), None);

    let listed = hub.cache().list().expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].repo.as_str(), listed[0].bytes, listed[0].incomplete), ("o/n", 6, false));
    assert_eq!(listed[0].revisions, [("main".to_owned(), "c".repeat(40))]);
    assert_eq!(hub.cache().remove("o/n").expect("removed"), Some(6));
    assert_eq!(hub.cache().remove("o/n").expect("none"), None);
    assert_eq!(hub.cache().list().expect("listed"), []);
    assert!(!Path::new(&rig.repo()).exists());
}

#[test]
fn a_preview_of_a_folder_is_all_but_the_weights() {
    let rig = Rig::new();
    let hub = rig.with(&[]);
    let preview = hub.preview(&model("o/n"), &mut |_| ()).expect("previewed");
    assert_eq!((preview.gguf_bytes, preview.weight_files), (None, 1));
    assert_eq!(preview.weight_bytes, rig.weights.len() as u64);
    assert_eq!(fs::read(preview.path.join("config.json")).expect("read"), CONFIG);
    assert!(!preview.path.join("model.safetensors").exists() && rig.incomplete().is_none());
    assert!(rig.hub.transfers().iter().all(|request| request.path.ends_with(".json")), "no byte of weights came");
    assert_eq!(hub.cached(&model("o/n")), None, "it is not complete");

    let refused = hub.pull(&model("o/n"), |_| Err(HubError::NoHome), &mut |_| ());
    assert!(matches!(refused, Err(HubError::NoHome)));
    assert_eq!(rig.hub.transfers().len(), 0, "what is refused is not fetched");

    let folder = rig.pull("o/n").expect("pulled");
    assert_eq!(fs::read(folder.join("model.safetensors")).expect("read"), rig.weights);
    assert!(rig.hub.requests().iter().all(|request| !request.path.ends_with(".json")), "nothing comes twice");
    assert_eq!(hub.cached(&model("o/n")), Some(folder));
}

#[test]
fn a_preview_of_a_gguf_file_is_its_beginning_and_the_rest_goes_on_there() {
    let (rig, bytes) = (Rig::new(), long_gguf());
    rig.hub.publish(&"d".repeat(40), &[("n-Q8_0.gguf", &bytes)]);
    let hub = rig.with(&[]);
    for _ in 0..2 {
        let preview = hub.preview(&model("o/n"), &mut |_| ()).expect("previewed");
        assert_eq!((preview.gguf_bytes, preview.weight_bytes), (Some(17_000_000), 17_000_000));
        assert_eq!(fs::read(&preview.path).expect("read"), bytes[..16 << 20]);
    }
    assert_eq!(ranges(&rig.hub.transfers()), [None], "the second preview takes what is here");
    assert_eq!(hub.cached(&model("o/n")), None, "it is not complete");

    let file = rig.pull("o/n").expect("pulled");
    assert_eq!(fs::read(&file).expect("read"), bytes);
    assert_eq!(ranges(&rig.hub.transfers()), [Some("bytes=16777216-")]);
    let preview = hub.preview(&model("o/n"), &mut |_| ()).expect("previewed");
    assert_eq!(fs::read(preview.path).expect("read").len(), bytes.len(), "it is complete");
}
