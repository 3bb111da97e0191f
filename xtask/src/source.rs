//! The files of the project as the checks see them, and Rust text without comments and literals.

use crate::error::ChoreError;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(test)]
mod tests;

/// Larger files are data, not text that a person wrote.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A text file.
pub(crate) struct File {
    /// From the root of the project.
    pub(crate) path: PathBuf,
    /// What it says.
    pub(crate) text: String,
    /// For Rust: [`code_only`] of the text; else empty.
    pub(crate) code: String,
}

impl File {
    /// Makes a file as if it had been read, for tests.
    pub(crate) fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let code = if path.extension().is_some_and(|e| e == "rs") { code_only(&text) } else { String::new() };
        Self { path, text, code }
    }

    /// Returns what it says as TOML. Errors: it is none.
    pub(crate) fn toml(&self) -> Result<toml::Table, ChoreError> {
        self.text.parse().map_err(|source| ChoreError::NotToml { path: self.path.clone(), source })
    }

    /// Returns whether it is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// What git knows or would take in: all paths, and the files among them that are text.
pub(crate) struct Tree {
    /// All paths from the root, sorted.
    pub(crate) paths: Vec<PathBuf>,
    /// The text files.
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the project at `root`. Errors: git is missing, this is no checkout, a file cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, ChoreError> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git").args(arguments).current_dir(root).output();
        let command = || "git ls-files".to_owned();
        let output = output.map_err(|source| ChoreError::NotRun { command: command(), source })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(ChoreError::Failed { command: command(), said });
        }
        let listing = String::from_utf8(output.stdout);
        let listing = listing.map_err(|source| ChoreError::NotText { command: command(), source })?;
        let mut paths: Vec<PathBuf> = listing.split_terminator('\0').map(PathBuf::from).collect();
        paths.retain(|path| root.join(path).is_file());
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in &paths {
            let full = root.join(path);
            if std::fs::metadata(&full).map_err(ChoreError::of_file(path))?.len() > TEXT_BYTES_MAX {
                continue;
            }
            if let Ok(text) = String::from_utf8(std::fs::read(&full).map_err(ChoreError::of_file(path))?) {
                files.push(File::new(path, text));
            }
        }
        Ok(Self { paths, files })
    }

    /// Returns the text file at `path`.
    pub(crate) fn file(&self, path: impl AsRef<Path>) -> Option<&File> {
        self.files.iter().find(|file| file.path == path.as_ref())
    }
}

/// Blanks the insides of comments, strings and character literals of Rust text. Lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(text, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(code).expect("whole characters are blanked")
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Returns the end of `r"..."` or `r#"..."#`, from the `r`. `None`: no raw string begins here.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let rest = &bytes[open + 1..];
    let length = rest.windows(close.len()).position(|window| window == close).map(|n| n + close.len());
    Some(length.map_or(bytes.len(), |length| open + 1 + length))
}

/// Returns the end of a character literal. `None` for a lifetime.
fn char_end(text: &str, at: usize) -> Option<usize> {
    let mut characters = text[at + 1..].char_indices();
    let (_, first) = characters.next()?;
    if first == '\\' {
        characters.next()?;
        return characters.find(|&(_, c)| c == '\'').map(|(n, _)| at + 1 + n + 1);
    }
    let (n, second) = characters.next()?;
    (second == '\'').then_some(at + 1 + n + 1)
}

/// Returns whether the byte before `at` belongs to the same word. The prefix `b` of a byte string is no word.
fn follows_word(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match at.checked_sub(1).map(|before| bytes[before]) {
        Some(b'b') => at >= 2 && is_word(bytes[at - 2]),
        Some(byte) => is_word(byte),
        None => false,
    }
}
