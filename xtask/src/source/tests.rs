use super::*;

/// `expect`: the words that are left. Places do not move.
#[track_caller]
fn check(text: &str, expect: &str) {
    let code = code_only(text);
    assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expect);
    assert_eq!(code.len(), text.len());
    for (before, after) in text.bytes().zip(code.bytes()) {
        assert!(after == before || (after == b' ' && before != b'\n'), "{code:?}");
    }
}

#[test]
fn comments_are_blanked() {
    check("a // b\nc", "a c");
    check("a /* b /* c */ d */ e", "a e");
    check("a /* open\n b", "a");
}

#[test]
fn strings_are_blanked() {
    check(r#"f("a // b", x)"#, "f( , x)");
    check(r#"f("a \" b", x)"#, "f( , x)");
    check("f(r#\"a \" b\"#, x)", "f( , x)");
    check("f(br\"a\\\", x)", "f(b , x)");
    check("for_in\"s\" x", "for_in x");
    check("\"two\nlines ü\" x", "x");
}

#[test]
fn characters_are_told_from_lifetimes() {
    check("f('\"', x)", "f( , x)");
    check(r"f('\'', x)", "f( , x)");
    check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
    check("f('ü', x)", "f( , x)");
}
