use super::*;
use proptest::prelude::*;

/// Returns what a search of the whole text says: the first end of any stop string, then the longest, then the first
/// given.
fn naive(text: &str, stops: &[String]) -> (String, Option<usize>) {
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let complete = (0..stops.len()).filter(|&i| !stops[i].is_empty() && text[..end].ends_with(&stops[i]));
        if let Some(best) = complete.min_by_key(|&i| (usize::MAX - stops[i].len(), i)) {
            return (text[..end - stops[best].len()].to_owned(), Some(best));
        }
    }
    (text.to_owned(), None)
}

/// All that is shown of `pieces`, and the stop string.
fn watch(pieces: &[&str], stops: &[String]) -> (String, Option<usize>) {
    let mut watcher = StopStrings::new(stops.to_vec());
    let mut shown = String::new();
    for piece in pieces {
        let watched = watcher.push(piece);
        shown += &watched.text;
        if watched.stopped.is_some() {
            assert_eq!(watcher.push("more"), Watched::default());
            assert_eq!(watcher.finish(), "");
            return (shown, watched.stopped);
        }
    }
    shown += &watcher.finish();
    (shown, None)
}

fn check(pieces: &[&str], stops: &[&str], text: &str, stopped: Option<usize>) {
    let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
    assert_eq!(watch(pieces, &stops), (text.to_owned(), stopped));
}

#[test]
fn cuts_before_the_stop_string() {
    check(&["a", "b", "c", "d"], &["cd"], "ab", Some(0));
    check(&["abcdef"], &["cd"], "ab", Some(0));
    check(&["stop"], &["stop"], "", Some(0));
    check(&["abc"], &[], "abc", None);
    check(&["abc"], &[""], "abc", None);
}

#[test]
fn the_first_to_be_complete_wins_then_the_longest() {
    check(&["xabc"], &["abc", "b"], "xa", Some(1));
    check(&["xabc"], &["bc", "abc", "c"], "x", Some(1));
    check(&["xab"], &["ab", "ab"], "x", Some(0));
}

#[test]
fn holds_back_only_what_may_become_a_stop_string() {
    let mut watcher = StopStrings::new(vec!["\n\nUser:".to_owned()]);
    assert_eq!(watcher.push("yes\n").text, "yes");
    assert_eq!(watcher.push("\n").text, "");
    assert_eq!(watcher.push("\n").text, "\n");
    assert_eq!(watcher.push("Us").text, "");
    assert_eq!(watcher.push("eful").text, "\n\nUseful");
    assert_eq!(watcher.push("é\n").text, "é");
    assert_eq!(watcher.finish(), "\n");
}

#[test]
fn characters_of_several_bytes_stay_whole() {
    // Both characters begin with the same byte.
    check(&["à", "é", "è"], &["éé"], "àéè", None);
    check(&["à", "é", "é"], &["éé"], "à", Some(0));
}

proptest! {
    #[test]
    fn agrees_with_a_search_of_the_whole_text(
        pieces in prop::collection::vec("[abé\n]{0,6}", 0..12),
        stops in prop::collection::vec("[abé\n]{0,5}", 0..5),
    ) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(watch(&pieces, &stops), naive(&pieces.concat(), &stops));
    }
}
