//! The tokens to go by.

use domain::Token;
use engine::models::ModelFiles;
use engine::text::Tokenizer;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Returns up to `count` texts of `tokens` tokens each, apart from each other: from the file, evenly over it; or drawn
/// at random, the same ones each time.
pub(super) fn texts(
    file: Option<&Path>,
    files: &ModelFiles,
    tokens: usize,
    count: usize,
) -> Result<Vec<Vec<Token>>, Box<dyn Error>> {
    let Some(file) = file else {
        let mut state = 1_u64;
        let vocab = files.spec.vocab as u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % vocab) as Token
        };
        return Ok((0..count).map(|_| (0..tokens).map(|_| draw()).collect()).collect());
    };
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    // Each text begins as those that the model knows do.
    let begin: Vec<Token> = files.spec.bos.into_iter().collect();
    let all = Tokenizer::open(&files.path)?.encode(&text, false)?;
    let own = tokens - begin.len();
    let count = count.min(all.len() / own);
    if count == 0 {
        return Err(format!("{} has {} tokens, less than one text of {own}", file.display(), all.len()).into());
    }
    let apart = all.len() / count;
    let text = |number: usize| [&begin[..], &all[number * apart..][..own]].concat();
    Ok((0..count).map(text).collect())
}
