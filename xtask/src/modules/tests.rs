use super::*;
use crate::source::File;

/// `expect`: what the files of the crate `a` take from each other, as `from -> to: name`, without `a/src/` and `.rs`.
#[track_caller]
fn check(files: &[(&str, &str)], expect: &[&str]) {
    let files: Vec<_> = files.iter().map(|(path, text)| File::new(format!("a/src/{path}.rs"), *text)).collect();
    let tree = Tree { paths: files.iter().map(|file| file.path.clone()).collect(), files };
    let modules = Modules::read(&tree, Path::new("a/src/lib.rs")).unwrap_or_else(|error| panic!("{error}"));
    let short = |path: &Path| path.with_extension("").strip_prefix("a/src").unwrap().display().to_string();
    let line = |import: &Import| format!("{} -> {}: {}", short(&import.from), short(&import.to), import.name);
    let mut lines: Vec<_> = modules.imports().iter().map(line).collect();
    lines.sort();
    assert_eq!(lines, expect);
}

#[test]
fn every_spelling_of_an_import_is_seen() {
    check(
        &[
            ("lib", "mod b;\nmod c;"),
            ("b", "pub struct B;\npub mod d;\nmod e { use super::super::c::C as X; }"),
            (
                "b/d",
                "use super::B;\nuse crate::{b, c::{self, c, deep::{D, *}}};\nuse ::c::No;\nuse crate::c::{self as again};",
            ),
            ("c", "pub struct C; pub fn c() {}\npub mod deep { pub struct D; }"),
        ],
        &["b -> c: C", "b/d -> b: B", "b/d -> c: *", "b/d -> c: D", "b/d -> c: c"],
    );
}

#[test]
fn paths_in_code_are_seen() {
    check(
        &[
            ("lib", "mod b;\nmod c;\nfn f() { b::b(); }"),
            (
                "b",
                "use crate::c;\npub fn b() -> Vec<c::A> { vec![super::c::B, x.c, std::c::F]; let c = c::C::new::<c::D>(); c }\n\
                 /// [crate::c::G]\n#[cfg(feature = \"x\")] impl c::E for u8 {}",
            ),
            ("c", ""),
        ],
        &["b -> c: A", "b -> c: B", "b -> c: C", "b -> c: D", "b -> c: E"],
    );
}

#[test]
fn what_is_re_exported_comes_from_where_it_is_defined() {
    check(
        &[
            ("lib", "mod b;\nmod c;\npub use b::{B, x::X};\npub(crate) use std::fmt::Debug;"),
            ("b", "pub mod x;\npub(crate) use x::{X as Y, Z};\nuse x::W;\npub struct B(Y);"),
            ("b/x", "pub struct X; pub struct Z; pub struct W;"),
            ("c", "use super::{B, X};\nuse crate::b::Y;\nuse crate::Debug;\nfn f(w: super::b::W) { super::b::Z }"),
        ],
        &["c -> b/x: W", "c -> b/x: X", "c -> b/x: Z", "c -> b: B"],
    );
}

#[test]
fn an_item_and_a_module_of_one_name_are_told_apart() {
    check(
        &[
            ("lib", "mod run;\nmod c;"),
            ("run", "mod serve;\npub(crate) use serve::serve;"),
            ("run/serve", "pub(crate) fn serve() {}"),
            ("c", "use crate::run;\nfn c() { let run = run::serve(); run }"),
        ],
        &["c -> run/serve: serve"],
    );
}

#[test]
fn globs_hand_names_on() {
    check(
        &[
            ("lib", "mod b;\nmod c;\nmod d;\npub use b::*;"),
            ("b", "pub struct B;\npub use std::io::*;"),
            ("c", "use super::B;"),
            ("d", "use crate::b::*;\nfn d(b: B) {}"),
        ],
        &["c -> b: B", "d -> b: *", "d -> b: B"],
    );
}

#[test]
fn tests_are_left_out() {
    check(
        &[
            ("lib", "mod b;\n#[cfg(test)] mod tests;\n#[cfg(all(test, unix))] mod more;\n#[path = \"x/y.rs\"] mod z;"),
            ("tests", "use crate::b::B;"),
            ("more", "use crate::b::B;"),
            (
                "b",
                "#[cfg(test)] use super::z::A;\nimpl B { #[cfg(test)] fn f() { super::z::Z } fn g() { super::z::G } }",
            ),
            ("x/y", "#![cfg_attr(x, y)]\nmod w;"),
            ("x/w", "use super::super::b::B;"),
        ],
        &["b -> x/y: G", "x/w -> b: B"],
    );
}
