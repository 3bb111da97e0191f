//! The models that are served: the bundled one, and one with random weights.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Variables of the environment that say where the binary under test is, and a folder to write to. They are set where
/// the tests run on another host than the one that built them.
const ELSEWHERE: [&str; 2] = ["E2E_BINARY", "E2E_FOLDER"];

/// Returns the path of the binary under test.
pub(crate) fn binary() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| elsewhere(0, env!("CARGO_BIN_EXE_baton")))
}

/// Returns what the environment has in the place of what was true where the tests were built.
#[expect(clippy::disallowed_methods, reason = "a test that runs on another host is told where it is")]
fn elsewhere(variable: usize, built: &str) -> String {
    std::env::var(ELSEWHERE[variable]).unwrap_or_else(|_| built.to_owned())
}

/// What every process is told: to serve the bundled model, whatever else was fetched. Flags overrule it.
pub(crate) const BUNDLED: (&str, &str) =
    ("BATON_MODEL__PATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust"));

/// A directory that is removed with its owner.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder for the test called `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self::below(Path::new(&elsewhere(1, env!("CARGO_TARGET_TMPDIR"))), name)
    }

    /// An empty folder in memory.
    pub(crate) fn in_memory(name: &str) -> Self {
        Self::below(Path::new("/dev/shm"), name)
    }

    fn below(folder: &Path, name: &str) -> Self {
        let path = folder.join(format!("e2e-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().expect("build folders have UTF-8 names")
    }

    /// Writes a model with random weights into it: four layers with a sliding window, no chat template. Returns where.
    pub(crate) fn window_model(&self) -> String {
        self.random_as("window", "mistral", "tiny-window")
    }

    /// Writes a model with random weights of this family and named shape into it. Returns where.
    pub(crate) fn random_model(&self, family: &str, shape: &str) -> String {
        self.random_as(family, family, shape)
    }

    fn random_as(&self, name: &str, family: &str, shape: &str) -> String {
        let dir = self.path(name);
        let arguments = ["model", "random", "--shape", shape, "--family", family, "--seed", "1", &dir];
        let output = Command::new(binary()).args(arguments).env_clear().output().expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        dir
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies in the build folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
