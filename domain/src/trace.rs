//! Where a request stands in a trace, which systems before and behind this one record, too.

/// The place in a trace below which spans are recorded. What is not recorded has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The trace.
    pub trace: u128,
    /// The span that is the parent of the next ones.
    pub span: u64,
}

impl TraceContext {
    /// Returns it as the header `traceparent` of W3C's Trace Context.
    pub fn to_traceparent(self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.span)
    }

    /// Reads the header `traceparent`, and whether its sender records the trace. `None`: it is not in that form, and to
    /// be ignored. Versions to come may have more at the end.
    pub fn of_traceparent(header: &str) -> Option<(Self, bool)> {
        let mut parts = header.split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace = hexadecimal(parts.next()?, 32)?;
        let span = hexadecimal(parts.next()?, 16)? as u64;
        let flags = hexadecimal(parts.next()?, 2)?;
        let is_known = version != 0xff && (version != 0 || parts.next().is_none());
        (is_known && trace != 0 && span != 0).then_some((Self { trace, span }, flags & 1 == 1))
    }
}

/// Reads so many lower-case digits.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_form_of_w3c_is_read_and_written() {
        let (context, records) = TraceContext::of_traceparent(EXAMPLE).expect("it is W3C's example");
        assert_eq!(
            context,
            TraceContext { trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, span: 0xb7ad_6b71_6920_3331 }
        );
        assert!(records);
        assert_eq!(context.to_traceparent(), EXAMPLE);
        let quiet = EXAMPLE.replace("-01", "-00");
        assert_eq!(TraceContext::of_traceparent(&quiet), Some((context, false)));
        let later = EXAMPLE.replacen("00", "01", 1) + "-more";
        assert_eq!(TraceContext::of_traceparent(&later), Some((context, true)));
    }

    #[test]
    fn what_is_not_in_that_form_is_ignored() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        let (upper, more, last) = (EXAMPLE.to_uppercase(), format!("{EXAMPLE}-00"), EXAMPLE.replacen("00", "ff", 1));
        for bad in ["", "00", &EXAMPLE[1..], &EXAMPLE[..54], &zero_trace, &zero_span, &upper, &more, &last] {
            assert_eq!(TraceContext::of_traceparent(bad), None, "{bad:?}");
        }
    }
}
