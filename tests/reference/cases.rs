//! The models that are compared with transformers: `cases.json`, which `make.py` reads too.

use domain::Dtype;
use engine::random::RandomSpec;
use serde::Deserialize;
use std::path::Path;

/// A random-weight model with a golden.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Case {
    /// Name of the golden.
    pub(crate) name: String,
    family: String,
    shape: String,
    seed: u64,
    dtype: Dtype,
}

impl Case {
    /// All of them.
    pub(crate) fn all() -> Vec<Case> {
        serde_json::from_str(include_str!("cases.json")).expect("cases.json is a list of cases")
    }

    /// Writes its checkpoint into `dir`.
    pub(crate) fn write(&self, dir: &Path) {
        let spec = RandomSpec::named(&self.family, &self.shape, self.seed, Some(self.dtype));
        let written = spec.and_then(|spec| spec.write(dir, &mut |_, _| {}));
        written.unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }
}
