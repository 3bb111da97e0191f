//! When a certificate expires, which rustls checks and does not tell.

/// Tags of DER: a sequence, a time of two digits of the year, one of four, and the version of a certificate.
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// Returns when a certificate expires, in seconds since the Unix epoch; `None`: it is none, or expired before that.
/// Source: RFC 5280, section 4.1.
pub(super) fn expiry_s(certificate: &[u8]) -> Option<u64> {
    let (signed, _) = sequence(certificate)?;
    let (mut fields, _) = sequence(signed)?;
    if fields.first() == Some(&VERSION) {
        (_, _, fields) = value(fields)?;
    }
    // The serial number, the algorithm and the issuer.
    for _ in 0..3 {
        (_, _, fields) = value(fields)?;
    }
    let (validity, _) = sequence(fields)?;
    let (_, _, end) = value(validity)?;
    let (tag, end, _) = value(end)?;
    seconds(tag, end)
}

/// Takes a sequence of DER apart: its content, and what follows it.
fn sequence(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    value(bytes).filter(|(tag, ..)| *tag == SEQUENCE).map(|(_, content, rest)| (content, rest))
}

/// Takes a value of DER apart: its tag, its content, and what follows it.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |all, digit| all << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Returns a time such as `20260101120000Z`, in seconds since the Unix epoch.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match tag {
        // Years from 50 on are of the last century.
        UTC_TIME => format!("{}{text}", if text >= "50" { "19" } else { "20" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    if text.len() != 14 || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let days = days_since_1970(number(0, 4)?, number(4, 6)?, number(6, 8)?)?;
    Some(((days * 24 + number(8, 10)?) * 60 + number(10, 12)?) * 60 + number(12, 14)?)
}

/// Returns the days from 1970-01-01 to a date; `None`: it is no later than that.
///
/// Source: `days_from_civil` of Howard Hinnant, "chrono-compatible low-level date algorithms"; years begin in March.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn certificates_expire_when_they_say() {
        // Up to 2049 a year has two digits, from then on four.
        for (date, wanted) in
            [((2024, 2, 29), 1_709_164_800), ((2049, 12, 31), 2_524_521_600), ((2100, 3, 1), 4_107_542_400)]
        {
            let mut params = CertificateParams::new(["host".to_owned()]).expect("a name");
            params.not_after = date_time_ymd(date.0, date.1, date.2);
            let key = KeyPair::generate().expect("there are random numbers");
            let certificate = params.self_signed(&key).expect("it is sound");
            assert_eq!(expiry_s(certificate.der()), Some(wanted), "{date:?}");
            for cut in 0..certificate.der().len() {
                assert_eq!(expiry_s(&certificate.der()[..cut]), None, "cut off at {cut}");
            }
        }
        assert_eq!(expiry_s(&[]), None);
        assert_eq!(seconds(UTC_TIME, b"700101000001Z"), Some(1));
        for wrong in [&b"701301000000Z"[..], b"700100000000Z", b"7001010000Z", b"70010100000xZ"] {
            assert_eq!(seconds(UTC_TIME, wrong), None, "{wrong:?}");
        }
    }
}
