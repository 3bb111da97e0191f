//! Whole answers in gzip, for clients that accept it. Streams stay as they are: each event is sent when it is there.

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::ops::RangeInclusive;

/// Bytes of an answer that is made smaller: one that is smaller fits a packet anyway, and a larger one would take a
/// thread that serves others for too long.
const BYTES: RangeInclusive<u64> = 1 << 10..=1 << 20;

/// Makes an answer smaller where that is worth it and its client accepts it.
pub(super) async fn shrink(request: Request, next: Next) -> Response {
    let accepts = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    let is_whole = response.body().size_hint().exact().is_some_and(|bytes| BYTES.contains(&bytes));
    if !is_whole || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    if !accepts {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // A body whose length is known is in memory.
    let Ok(bytes) = to_bytes(body, *BYTES.end() as usize).await else { return head.status.into_response() };
    let mut small = GzEncoder::new(Vec::new(), Compression::fast());
    small.write_all(&bytes).expect("a Vec takes all that is written");
    let small = small.finish().expect("a Vec takes all that is written");
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(head, Body::from(small))
}

/// Returns whether a client accepts gzip: it names it or `*`, and not with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let weight = |item: &str| {
        let (name, rest) = item.split_once(';').unwrap_or((item, ""));
        let weight = rest.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.trim().parse::<f32>().ok());
        (name.trim().to_ascii_lowercase(), weight.unwrap_or(0.0))
    };
    let items: Vec<(String, f32)> = lists.flat_map(|list| list.split(',')).map(weight).collect();
    let of = |wanted: &str| items.iter().find(|(name, _)| name == wanted).map(|&(_, weight)| weight);
    of("gzip").or(of("x-gzip")).or(of("*")).is_some_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_where_it_is_named_and_not_excluded() {
        for (list, expect) in [
            ("gzip, deflate", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("br", false),
            ("gzip;q=0", false),
            ("*, gzip; q=0", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(list))]);
            assert_eq!(accepts_gzip(&headers), expect, "{list}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
