//! The card that processes of the binary find, and the model that they serve on it.

use crate::models::Folder;
use engine::cuda::Card;
use std::sync::OnceLock;

/// Where the dynamic linker looks for the libraries of CUDA, and where the emulator finds its compiler.
const KEPT: [&str; 2] = ["LD_LIBRARY_PATH", "PATH"];

/// What the emulator's name of its card has in it.
pub(crate) const EMULATED: &str = "no GPU";

/// A card of this host.
pub(crate) struct TestCard {
    /// What a process needs in its environment to find it.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Its name, architecture, and the versions of driver and compiler.
    pub(crate) description: String,
}

impl TestCard {
    /// Finds the first card. `None`: there is none, which is said once.
    #[expect(clippy::disallowed_methods, reason = "the processes of a test look for the libraries where it does")]
    pub(crate) fn find() -> Option<&'static Self> {
        static CARD: OnceLock<Option<TestCard>> = OnceLock::new();
        let find = || match Card::open(0, None) {
            Ok(card) => {
                let kept = KEPT.iter().filter_map(|&name| Some((name, std::env::var(name).ok()?)));
                Some(TestCard { environment: kept.collect(), description: card.describe().to_owned() })
            }
            Err(error) => {
                println!("skipped: {error}; `make test-cuda` runs these tests in an emulator");
                None
            }
        };
        CARD.get_or_init(find).as_ref()
    }

    /// Returns whether it is the emulator.
    pub(crate) fn is_emulated(&self) -> bool {
        self.description.contains(EMULATED)
    }

    /// Returns its environment and more, for a process.
    pub(crate) fn with<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied()).collect()
    }
}

/// Writes a model of two layers with random weights for cards into the folder. Returns where.
pub(crate) fn model(folder: &Folder, family: &str) -> String {
    let shape = if family == "ministral3" { "tiny-64-yarn" } else { "tiny-64" };
    folder.random_model(family, shape)
}
