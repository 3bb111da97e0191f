//! Python's `strftime` in the C locale and UTC, as far as templates write dates.

use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SECONDS_PER_DAY: u64 = 86_400;

/// A format that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StrftimeError {
    #[error("strftime_now: %{0} is not supported")]
    UnknownDirective(char),
    #[error("strftime_now: the format ends in %")]
    Unfinished,
}

/// Writes the time `unix_s` seconds after the beginning of 1970, written by `format`.
pub(super) fn strftime(format: &str, unix_s: u64) -> Result<String, StrftimeError> {
    let (days, second) = (unix_s / SECONDS_PER_DAY, unix_s % SECONDS_PER_DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (month_name, weekday) = (MONTHS[month as usize - 1], WEEKDAYS[((days + 4) % 7) as usize]);
    let hour_12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        // `%-d` is glibc's way to write a number without padding.
        let mut directive = chars.next();
        let bare = directive == Some('-');
        if bare {
            directive = chars.next();
        }
        let mut number = |value: u64, width: usize| {
            let width = if bare { 0 } else { width };
            write!(out, "{value:0width$}").expect("a string takes all that is written");
        };
        match directive {
            Some('Y') => number(year, 4),
            Some('y') => number(year % 100, 2),
            Some('m') => number(month, 2),
            Some('d') => number(day, 2),
            Some('H') => number(hour, 2),
            Some('I') => number(hour_12, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('B') => out += month_name,
            Some('b') => out += &month_name[..3],
            Some('A') => out += weekday,
            Some('a') => out += &weekday[..3],
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('F') => out += &strftime("%Y-%m-%d", unix_s)?,
            Some('T') => out += &strftime("%H:%M:%S", unix_s)?,
            Some('Z') => out += "UTC",
            Some('z') => out += "+0000",
            Some('%') => out.push('%'),
            Some(other) => return Err(StrftimeError::UnknownDirective(other)),
            None => return Err(StrftimeError::Unfinished),
        }
    }
    Ok(out)
}

/// Returns year, month and day of the day `days` after the beginning of 1970.
///
/// Source: `civil_from_days` of Howard Hinnant, "chrono-compatible low-level date algorithms"; years begin in March.
pub fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, unix_s: u64, expected: &str) {
        assert_eq!(strftime(format, unix_s).as_deref(), Ok(expected));
    }

    #[test]
    fn writes_dates_as_python_does() {
        check("%d %b %Y", 0, "01 Jan 1970");
        check("%A, %B %-d, %Y %H:%M:%S", 951_827_696, "Tuesday, February 29, 2000 12:34:56");
        check("%a %y-%m-%d %I:%M %p %%", 4_107_542_399, "Sun 00-02-28 11:59 PM %");
        check("%F %T %Z %z", 1_767_225_599, "2025-12-31 23:59:59 UTC +0000");
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert!(strftime("%Q", 0).is_err());
        assert!(strftime("%", 0).is_err());
    }
}
