//! What came of a run, as data and as text.

use crate::bounds::TURNS;
use crate::subject::Settings;
use bench_report::short;
use serde::Serialize;
use std::fmt;

/// Figures that spread wider than this, largest by smallest, are pointed out.
const SPREAD_MAX: f64 = 1.5;

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of the program.
    pub version: &'static str,
    /// The model.
    pub model: String,
    /// What was asked for.
    pub settings: Settings,
    /// What read the raw bytes, in words.
    pub mover: String,
    /// Length by length.
    pub prompts: Vec<PromptFigures>,
    /// Tier by tier.
    pub wear: Vec<Wear>,
    /// What a reader should know before trusting a figure.
    pub notes: Vec<String>,
}

/// A median, and how far the samples spread, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Figures of prompts of one length.
#[derive(Clone, Debug, Serialize)]
pub struct PromptFigures {
    /// The length.
    pub tokens: u32,
    /// Bytes that come from a tier for such a prompt.
    pub bytes: usize,
    /// A plain copy of them by one thread.
    pub memcpy_s: Spread,
    /// A plain read of them past the page cache.
    pub read_s: Spread,
    /// A step that decodes one sequence after such a prompt.
    pub decode_step_s: Spread,
    /// From where the prompts came.
    pub rows: Vec<Row>,
}

/// Prompts that came from one place.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `computed`, `device`, or the tier.
    pub place: &'static str,
    /// From the request to the end of its one token, over HTTP.
    pub first_token_s: Spread,
    /// The fewest tokens of a prompt that came from there; 0 of `computed`.
    pub tokens: u64,
    /// Share of the time that computing takes.
    pub of_computing: f64,
    /// How much longer it takes than from the device.
    pub over_device_s: f64,
    /// Twice the plain copy, or 1.3 times the plain read, and a decode step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_s: Option<f64>,
    /// The time as a share of that goal: at most 1 reaches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_goal: Option<f64>,
}

/// What the run wrote to a tier, and read from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wear {
    /// The tier.
    pub tier: &'static str,
    /// Bytes that were written.
    pub written: u64,
    /// Bytes that were read later.
    pub read: u64,
}

impl Spread {
    /// Makes the spread of these samples, of which there is at least one.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0));
        Self { median: sorted.get(sorted.len() / 2).copied().unwrap_or(0.0), min, max }
    }
}

impl Wear {
    /// Returns the bytes written for each byte that was read later; `None`: nothing was.
    pub fn written_per_read(&self) -> Option<f64> {
        (self.read > 0).then(|| self.written as f64 / self.read as f64)
    }
}

/// Returns milliseconds, short.
pub(crate) fn ms(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", short(-seconds * 1e3)) } else { short(seconds * 1e3) }
}

impl PromptFigures {
    /// Returns what the row is about, in one line.
    pub(crate) fn headline(&self) -> String {
        format!(
            "{} tokens, {} MiB: plain copy {} ms, raw read {} ms, a decode step {} ms",
            self.tokens,
            short(self.bytes as f64 / f64::from(1 << 20)),
            ms(self.memcpy_s.median),
            ms(self.read_s.median),
            ms(self.decode_step_s.median)
        )
    }
}

impl Row {
    /// Returns its cells, in the order of [`COLUMNS`].
    pub(crate) fn cells(&self) -> [String; 7] {
        let Spread { median, min, max } = self.first_token_s;
        let optional = |value: Option<String>| value.unwrap_or_default();
        [
            ms(median),
            format!("{}-{}", ms(min), ms(max)),
            if self.tokens > 0 { self.tokens.to_string() } else { String::new() },
            format!("{:.3}", self.of_computing),
            ms(self.over_device_s),
            optional(self.goal_s.map(ms)),
            optional(self.of_goal.map(|share| format!("{share:.2}"))),
        ]
    }
}

/// What the cells of a row are called.
pub(crate) const COLUMNS: [&str; 7] =
    ["first token", "from-to", "tokens from it", "of computing", "over device", "goal", "of goal"];

impl Report {
    /// Returns what was measured, in one line.
    pub(crate) fn headline(&self) -> String {
        format!("{}; {TURNS} prompts of each length in turn, {} rounds", self.model, self.settings.rounds)
    }

    /// Returns what a reader should know, with what the spread of the figures says.
    pub(crate) fn all_notes(&self) -> Vec<String> {
        let rows = self.prompts.iter().flat_map(|prompt| prompt.rows.iter().map(move |row| (prompt.tokens, row)));
        let wide = rows.filter(|(_, row)| row.first_token_s.max > SPREAD_MAX * row.first_token_s.min);
        let wide: Vec<String> = wide.map(|(tokens, row)| format!("{tokens} from {}", row.place)).collect();
        let mut notes = self.notes.clone();
        if !wide.is_empty() {
            notes.push(format!(
                "Samples spread wider than {SPREAD_MAX} of {}: was anything else running?",
                wide.join(", ")
            ));
        }
        notes
    }

    /// Returns the wear of a tier, in words.
    pub(crate) fn wear_line(wear: &Wear) -> String {
        let mib = |bytes: u64| short(bytes as f64 / f64::from(1 << 20));
        let ratio = wear.written_per_read().map_or("nothing was read".to_owned(), |ratio| {
            format!("{ratio:.2} bytes written for each that was read later")
        });
        format!("{}: {} MiB written, {} MiB read; {ratio}", wear.tier, mib(wear.written), mib(wear.read))
    }
}

impl fmt::Display for Report {
    /// Tables for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\nraw reads: {}", self.headline(), self.mover)?;
        for prompt in &self.prompts {
            writeln!(f, "\n{}", prompt.headline())?;
            write!(f, "{:<10}", "from")?;
            for name in COLUMNS {
                write!(f, "{name:>16}")?;
            }
            writeln!(f)?;
            for row in &prompt.rows {
                write!(f, "{:<10}", row.place)?;
                for cell in row.cells() {
                    write!(f, "{cell:>16}")?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "\ntimes in ms; a goal is a decode step beside 2 plain copies (host) or 1.3 raw reads (disk)")?;
        for wear in &self.wear {
            writeln!(f, "{}", Self::wear_line(wear))?;
        }
        for note in self.all_notes() {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kv_manager::tiers::Tier;

    pub(crate) fn report() -> Report {
        let spread = |median: f64| Spread { median, min: 0.9 * median, max: 1.1 * median };
        let row = |place, first: f64, goal: Option<f64>| Row {
            place,
            first_token_s: spread(first),
            tokens: 1008,
            of_computing: first / 0.2,
            over_device_s: first - 0.01,
            goal_s: goal,
            of_goal: goal.map(|goal| first / goal),
        };
        let prompt = |tokens| PromptFigures {
            tokens,
            bytes: 12 << 20,
            memcpy_s: spread(0.002),
            read_s: spread(0.02),
            decode_step_s: spread(0.01),
            rows: vec![row("computed", 0.2, None), row("device", 0.01, None), row("host", 0.02, Some(0.014))],
        };
        Report {
            version: "0",
            model: "a model".to_owned(),
            settings: Settings { prompts: vec![1024, 4096], rounds: 3, tiers: vec![Tier::Host] },
            mover: "io_uring".to_owned(),
            prompts: vec![prompt(1024), prompt(4096)],
            wear: vec![Wear { tier: "host", written: 1 << 20, read: 4 << 20 }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_table_tells_each_place_beside_its_goal() {
        let mut report = report();
        let text = report.to_string();
        assert!(text.contains("1024 tokens, 12.0 MiB: plain copy 2.00 ms, raw read 20.0 ms"), "{text}");
        let host = text.lines().find(|line| line.starts_with("host ")).expect("a row");
        let cells: Vec<&str> = host.split_whitespace().collect();
        assert_eq!(cells, ["host", "20.0", "18.0-22.0", "1008", "0.100", "10.0", "14.0", "1.43"]);
        assert!(text.contains("host: 1.00 MiB written, 4.00 MiB read; 0.25 bytes written for each"), "{text}");
        assert!(!text.contains("spread wider"), "{text}");
        report.prompts[0].rows[0].first_token_s.max = 1.0;
        assert!(report.to_string().contains("of 1024 from computed"), "{report}");
    }

    #[test]
    fn the_median_is_a_sample() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Wear { tier: "disk", written: 5, read: 0 }.written_per_read(), None);
    }
}
