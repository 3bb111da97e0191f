//! The pages for browsers, which are part of the binary: the console of operators, and a page to chat. Their files are
//! in the folder `console`, are served as they are, and load nothing from elsewhere.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of a page.
struct File {
    name: &'static str,
    bytes: &'static [u8],
}

/// Embeds files of the folder `console`.
macro_rules! files {
    ($($name:literal,)+) => {
        &[$(File { name: $name, bytes: include_bytes!(concat!("../../../console/", $name)) },)+]
    };
}

/// The page to chat, before all that it loads.
static CHAT: &[File] = files![
    "chat.html",
    "base.css",
    "chat.css",
    "icon.svg",
    "theme.js",
    "dom.js",
    "api.js",
    "key.js",
    "chat.js",
    "text.js",
    "chat-page.js",
];
/// The console, before what it loads beside the files of the page to chat.
static CONSOLE: &[File] = files![
    "console.html",
    "console.css",
    "console.js",
    "format.js",
    "feed.js",
    "workers.js",
    "worker-card.js",
    "prefixes.js",
    "changes.js",
    "lanes.js",
    "requests.js",
    "explanation.js",
    "phases.js",
    "confirm.js",
];

/// What a page may do: load files of this port and talk to it, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
/// Keeps windows that a page opened, or that opened it, from reaching into it.
static OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Keeps pages of others from embedding its files.
static RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Returns the page to chat at `/`, and what it loads.
pub(super) fn chat<S: Clone + Send + Sync + 'static>() -> Router<S> {
    page(&[CHAT])
}

/// Returns the console at `/`, and what it loads.
pub(super) fn console<S: Clone + Send + Sync + 'static>() -> Router<S> {
    page(&[CONSOLE, CHAT])
}

/// Returns the first of these files at `/`, and all below `/console/`.
fn page<S: Clone + Send + Sync + 'static>(files: &[&'static [File]]) -> Router<S> {
    let all = files.iter().copied().flatten();
    let paths = all.fold(Router::new(), |paths, file| paths.route(&format!("/console/{}", file.name), serve(file)));
    paths.route("/", serve(&files[0][0]))
}

fn serve<S: Clone + Send + Sync + 'static>(file: &'static File) -> axum::routing::MethodRouter<S> {
    get(move || std::future::ready(file.answer()))
}

impl File {
    fn kind(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, kind)| kind) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }

    fn answer(&self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.kind()),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (OPENER_POLICY.clone(), "same-origin"),
            (RESOURCE_POLICY.clone(), "same-origin"),
            // The next version of the binary has other files under the same names.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), self.bytes).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns what follows each `mark` in a file, up to the quote that it ends with.
    fn named<'a>(file: &'a File, mark: &str) -> impl Iterator<Item = &'a str> {
        let text = std::str::from_utf8(file.bytes).expect("files are text");
        text.split(mark).skip(1).filter_map(|rest| rest.split(['"', '\'']).next()).collect::<Vec<_>>().into_iter()
    }

    /// Checks that the files of a page name each other alone, and that each is named.
    fn check(files: &[&'static [File]]) {
        let all: Vec<&File> = files.iter().copied().flatten().collect();
        let have: BTreeSet<&str> = all.iter().map(|file| file.name).collect();
        let mut need = BTreeSet::from([files[0][0].name]);
        for file in &all {
            for mark in ["src=\"console/", "href=\"console/", "from \"./", "import \"./"] {
                need.extend(named(file, mark));
            }
            for mark in
                ["src=\"http", "href=\"http", "url(", "@import", "from \"http", "innerHTML", "style=\"", "onclick="]
            {
                assert_eq!(named(file, mark).next(), None, "{} has {mark}", file.name);
            }
        }
        assert!(need.is_subset(&have), "missing: {:?}", need.difference(&have));
        let unused: Vec<_> = have.difference(&need).filter(|name| **name != CHAT[0].name).collect();
        assert!(unused.is_empty(), "nothing loads {unused:?}");
    }

    #[test]
    fn pages_have_all_that_they_load_and_load_nothing_else() {
        check(&[CHAT]);
        check(&[CONSOLE, CHAT]);
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../console")).expect("it is there");
        let names = folder.map(|entry| entry.expect("it can be read").file_name().into_string().expect("it is UTF-8"));
        let have = CHAT.iter().chain(CONSOLE).map(|file| file.name.to_owned());
        assert_eq!(names.filter(|name| name != "README.md").collect::<BTreeSet<_>>(), have.collect());
    }
}
