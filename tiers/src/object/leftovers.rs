//! What a store has of earlier versions of records: counted once in the life of a worker, a page at a time, beside
//! everything else. It is not read, and it stays until an operator removes it with the command that the log names.
//!
//! What other models have in the store is not looked at: other workers may be using it.

use super::rounds::PAGE_KEYS;
use crate::model_key::{is_hex, is_model};
use kv_manager::tiers::header::VERSION;
use transport::{ListedObject, ObjectWork, TransferId};

/// Pages of a version, at most. What is beyond is not counted.
const PAGES_MAX: usize = 1000;

/// Hexadecimal digits of a block's identity.
const HASH_DIGITS: usize = 32;

/// How far the store was looked through.
pub(super) struct Leftovers {
    /// What the keys of a version begin with, up to that.
    prefix: String,
    version: u32,
    after: Option<String>,
    pages: usize,
    found: Leftover,
    /// The page that the store was asked for.
    asked: Option<TransferId>,
}

/// What the store has of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftover {
    pub(super) version: u32,
    pub(super) objects: usize,
    pub(super) bytes: u64,
    /// There are more.
    pub(super) is_least: bool,
    /// Objects that are no records lie among them.
    pub(super) is_mixed: bool,
}

impl Leftovers {
    /// Begins with records whose keys begin with this, which ends with a slash.
    pub(super) fn new(prefix: String) -> Self {
        let found = Leftover { version: 1, ..Leftover::default() };
        Self { prefix, version: 1, after: None, pages: 0, found, asked: None }
    }

    /// Returns what to ask the store for next. `None`: it was asked, or has told everything.
    pub(super) fn next(&self) -> Option<ObjectWork> {
        (self.asked.is_none() && self.version < VERSION).then(|| ObjectWork::List {
            prefix: format!("{}{}", self.prefix, self.version),
            after: self.after.clone(),
            keys_max: PAGE_KEYS,
        })
    }

    /// Notes that the store was asked for it.
    pub(super) fn asked(&mut self, id: TransferId) {
        self.asked = Some(id);
    }

    /// Returns whether this is what the store was asked for.
    pub(super) fn is_asked(&self, id: TransferId) -> bool {
        self.asked == Some(id)
    }

    /// Takes a page that the store answered with. Returns what it has of a version, once that is known and something.
    pub(super) fn answered(&mut self, page: &[ListedObject]) -> Option<Leftover> {
        self.asked = None;
        self.pages += 1;
        let begin = format!("{}{}/", self.prefix, self.version);
        for object in page {
            if object.key.strip_prefix(&begin).is_some_and(is_record) {
                self.found.objects += 1;
                self.found.bytes += object.bytes;
            } else {
                self.found.is_mixed = true;
            }
        }
        let is_full = page.len() == PAGE_KEYS;
        if is_full && self.pages < PAGES_MAX {
            self.after = page.last().map(|object| object.key.clone());
            return None;
        }
        self.version += 1;
        (self.after, self.pages) = (None, 0);
        let found = std::mem::replace(&mut self.found, Leftover { version: self.version, ..Leftover::default() });
        Some(Leftover { is_least: is_full, ..found }).filter(|found| found.objects > 0)
    }

    /// Notes that the store does not say now: it is asked again later.
    pub(super) fn failed(&mut self) {
        self.asked = None;
    }
}

/// Returns whether a key of a version is one of a record: a model, a KV group and a block's identity.
fn is_record(key: &str) -> bool {
    let mut parts = key.split('/');
    let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
    let [Some(model), Some(group), Some(hash), None] = parts else { return false };
    is_model(model) && group.parse::<u16>().is_ok() && is_hex(hash, HASH_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(len: usize) -> Vec<ListedObject> {
        let key = |n| format!("kv/1/0123456789abcdef/0/{n:032x}");
        (0..len).map(|n| ListedObject { key: key(n), bytes: 10 }).collect()
    }

    fn listed(of: &Leftovers) -> (String, Option<String>) {
        match of.next() {
            Some(ObjectWork::List { prefix, after, .. }) => (prefix, after),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_pages_of_a_version_are_counted_and_no_more_than_so_many() {
        let mut leftovers = Leftovers::new("kv/".to_owned());
        assert_eq!(listed(&leftovers), ("kv/1".to_owned(), None));
        assert_eq!(leftovers.answered(&page(PAGE_KEYS)), None);
        assert_eq!(
            listed(&leftovers),
            ("kv/1".to_owned(), Some(format!("kv/1/0123456789abcdef/0/{:032x}", PAGE_KEYS - 1)))
        );
        let (objects, bytes) = (PAGE_KEYS + 7, 10 * (PAGE_KEYS as u64 + 7));
        let found = Leftover { version: 1, objects, bytes, ..Leftover::default() };
        assert_eq!(leftovers.answered(&page(7)), Some(found));
        assert!(leftovers.next().is_none(), "records of this version are the tier's own");

        let mut leftovers = Leftovers::new("kv/".to_owned());
        let found = (0..PAGES_MAX).find_map(|_| leftovers.answered(&page(PAGE_KEYS))).expect("it ends");
        assert_eq!((found.objects, found.is_least), (PAGES_MAX * PAGE_KEYS, true));
        let mut leftovers = Leftovers::new(String::new());
        assert_eq!(leftovers.answered(&[]), None, "a store without any");
    }

    #[test]
    fn what_is_no_record_is_not_counted_and_told_apart() {
        let mut leftovers = Leftovers::new("kv/".to_owned());
        // Records of another cluster, whose prefix is `kv/1`, and what people put there.
        let others = ["kv/1/2/0123456789abcdef/0/".to_owned() + &"0".repeat(32), "kv/1/notes.txt".to_owned()];
        let others = others.map(|key| ListedObject { key, bytes: 1000 });
        assert_eq!(
            leftovers.answered(&[page(3), others.to_vec()].concat()).map(|it| (it.objects, it.bytes, it.is_mixed)),
            Some((3, 30, true))
        );
        let mut leftovers = Leftovers::new("kv/".to_owned());
        assert_eq!(leftovers.answered(&others), None);
    }

    #[test]
    fn a_store_that_does_not_answer_is_asked_again() {
        let mut leftovers = Leftovers::new("kv/".to_owned());
        leftovers.asked(TransferId(7));
        assert!(leftovers.next().is_none() && leftovers.is_asked(TransferId(7)));
        leftovers.failed();
        assert_eq!(listed(&leftovers), ("kv/1".to_owned(), None));
    }
}
