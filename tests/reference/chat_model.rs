//! The small chat model that `scripts/fetch-model` fetches: where it lies, and what transformers answers with it.

use std::path::{Path, PathBuf};

/// The chats and their answers: `make_chats.py` makes them, and says what they hold.
pub(crate) const GOLDENS: &str = include_str!("goldens/chats.json");
/// The file, as the script names it.
const FILE: &str = "SmolLM2-135M-Instruct-Q4_1.gguf";

/// Returns where the model is; where it is not, says that the test is skipped.
pub(crate) fn fetched() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // As in the script, a path that is not absolute begins at the project's folder.
    #[expect(clippy::disallowed_methods, reason = "a test's own setting")]
    let folder = root.join(std::env::var_os("BATON_MODELS").unwrap_or("models/fetched".into()));
    let path = folder.join(FILE);
    if !path.is_file() {
        println!("skipped: it takes the chat model {FILE}, which scripts/fetch-model fetches");
        return None;
    }
    Some(path)
}
