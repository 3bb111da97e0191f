//! Prose that a newcomer reads: sentences that are short enough, and the field's words in place of coined ones. Papers
//! have none that break these rules; doc comments have fewer and fewer ([`super::ratchet`]).

use super::{Finding, words};
use crate::source::{File, Tree};
use std::path::Path;

/// Longer sentences are read twice.
const SENTENCE_WORDS_MAX: usize = 32;

/// Words that Baton's papers do not use, each with the one that they do.
const WORDS: [(&str, &str); 11] = [
    ("mend", "fix"),
    ("mends", "fixes"),
    ("lest", "so that ... not"),
    ("nobody", "no worker, no client, ..."),
    ("somebody", "a client, a worker, ..."),
    ("whoever", "the one that"),
    ("whomever", "the one that"),
    ("anew", "again"),
    ("lent", "leased, borrowed"),
    ("therein", "in it"),
    ("thereof", "of it"),
];

/// Notes of measurements and of decisions keep the words in which they were written, and the changelog its lines.
const NOTES: [&str; 4] = ["docs/performance/lab", "docs/decisions", "CHANGELOG.md", "models"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let is_paper = |file: &&File| {
        file.path.extension().is_some_and(|extension| extension == "md")
            && !NOTES.iter().any(|note| file.path.starts_with(note))
            && !file.path.starts_with("tests")
            || file.path == Path::new("tests/README.md")
    };
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(is_paper) {
        check_paper(file, &mut findings);
    }
    findings
}

fn check_paper(file: &File, findings: &mut Vec<Finding>) {
    for (line, paragraph) in paragraphs(&file.text) {
        for (what, fix) in faults(&paragraph) {
            findings.push(Finding::new(&file.path, line, what, fix));
        }
    }
}

/// Returns the lines, from 1, of paragraphs in doc comments that break the rules: once for each time.
pub(super) fn doc_comments(file: &File) -> Vec<usize> {
    // A line that is no doc comment ends a paragraph.
    let doc = |line: &'_ str| -> String {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).unwrap_or_default();
        text.strip_prefix(' ').unwrap_or(text).to_owned()
    };
    let docs: Vec<String> = file.text.lines().map(doc).collect();
    let paragraphs = paragraphs(&docs.join("\n"));
    paragraphs.iter().flat_map(|(line, text)| faults(text).into_iter().map(|_| *line)).collect()
}

/// Returns what is wrong with a paragraph, each with what to do.
fn faults(paragraph: &str) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    for (word, better) in WORDS {
        if words(&paragraph.to_lowercase(), word).next().is_some() {
            faults.push((format!("the word `{word}`"), format!("say: {better}")));
        }
    }
    for sentence in sentences(paragraph) {
        let count = sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        if count > SENTENCE_WORDS_MAX {
            let begin: String = sentence.chars().take(50).collect();
            let what = format!("a sentence of {count} words, over {SENTENCE_WORDS_MAX}: `{begin} ...`");
            faults.push((what, "make two of it, or a list".to_owned()));
        }
        // Machines are no persons, and a sentence begins with its subject.
        if sentence.trim_start().starts_with("Who ") && !sentence.ends_with('?') {
            faults.push(("a sentence that begins with `Who`".to_owned(), "begin with the subject".to_owned()));
        }
    }
    faults
}

/// Paragraphs and items of lists with the line, from 1, at which each begins. Code, tables, headings, pictures and
/// quoted words are left out.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (at, line) in text.lines().enumerate() {
        let words = line.trim_start();
        if words.starts_with("```") {
            (fenced, open) = (!fenced, false);
            continue;
        }
        let indented = line.starts_with("    ") && !open;
        let is_item = ["- ", "* ", "+ "].iter().any(|mark| words.starts_with(mark))
            || words.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if fenced || indented || words.is_empty() || words.starts_with(['|', '#', '<', '!', '>']) {
            open = false;
        } else if open && !is_item {
            let last = found.last_mut().expect("one is open");
            last.1.push(' ');
            last.1.push_str(words);
        } else {
            found.push((at + 1, words.to_owned()));
            open = true;
        }
    }
    found.into_iter().map(|(at, text)| (at, without_code(&text))).collect()
}

/// Replaces each piece of code, so that it counts as one word of its sentence.
fn without_code(text: &str) -> String {
    text.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "code" } else { part }).collect()
}

fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    paragraph
        .split_inclusive(&['.', '?', '!', ':', ';'][..])
        .scan((paragraph, 0), |state, part| {
            // Only a mark before a space ends a sentence: `0.2.0` is a word.
            let (text, begin) = *state;
            let end = part.as_ptr() as usize - text.as_ptr() as usize + part.len();
            let ends = text[end..].is_empty() || text[end..].starts_with([' ', ')', '"', '*']);
            if !ends {
                return Some(None);
            }
            *state = (text, end);
            Some(Some(&text[begin..end]))
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(path: &str, text: &str, expect: &[(usize, &str)]) {
        let tree = Tree { paths: vec![path.into()], files: vec![File::new(path, text)] };
        let found = check(&tree);
        let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn coined_words_are_found_outside_of_code() {
        check_text(
            "README.md",
            "# Mend\n\nYou mend\n`it`, nobody else.\n\n    mend\n",
            &[(3, "the word `mend`"), (3, "the word `nobody`")],
        );
        check_text("CHANGELOG.md", "You mend it.", &[]);
        check_text("README.md", "`mend`, amend, mending", &[]);
    }

    #[test]
    fn a_sentence_begins_with_its_subject() {
        check_text("README.md", "It ends. Who asks, waits.", &[(1, "a sentence that begins with `Who`")]);
        check_text("README.md", "Who asks?", &[]);
    }

    #[test]
    fn doc_comments_are_read_without_what_stands_between() {
        let text = "//! Nobody.\n// nobody\nfn f() {}\n    /// A\n    /// nobody `nobody`.\n    ///\n    /// ```\n    /// nobody\n    /// ```\n";
        assert_eq!(doc_comments(&File::new("a.rs", text)), [1, 4]);
    }

    #[test]
    fn long_sentences_are_found() {
        let words = |count: usize| vec!["word"; count].join(" ");
        check_text("docs/a.md", &format!("{}. {}.", words(SENTENCE_WORDS_MAX), words(4)), &[]);
        let text = format!("Short 0.2.0.\n\n- {}\n  b.\n- c", words(SENTENCE_WORDS_MAX));
        let begin: String = format!("- {text}").chars().skip(16).take(50).collect();
        let found = format!("a sentence of 33 words, over 32: `{begin} ...`");
        check_text("docs/a.md", &text, &[(3, &found)]);
        check_text("docs/a.md", &format!("| {} |", words(SENTENCE_WORDS_MAX + 1)), &[]);
    }
}
