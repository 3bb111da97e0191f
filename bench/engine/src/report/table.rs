//! The report as text.

use super::{Rates, Report, WorkFigures};
use std::fmt;

impl Report {
    /// Returns what was measured, in one line.
    pub fn headline(&self) -> String {
        let mib = self.weight_bytes as f64 / f64::from(1 << 20);
        format!("{} in {}, {mib:.0} MiB of weights a step", self.model, self.weights)
    }

    /// Returns the limits, in one line.
    pub fn limits_line(&self) -> String {
        let limits = &self.limits;
        let formats = [
            ("f32", limits.f32_gflop_per_s, "GFLOP/s"),
            ("bf16", limits.bf16_gflop_per_s, "GFLOP/s"),
            ("integers of 8 bits", limits.int8_gop_per_s, "G/s"),
        ];
        let rate = |(format, rate, unit): (&str, Option<f64>, &str)| Some(format!("{format} at {:.0} {unit}", rate?));
        let rates: Vec<String> = formats.into_iter().filter_map(rate).collect();
        format!("the machine: reads {:.1} GB/s; multiplies {}", limits.read_gb_per_s, rates.join(", "))
    }

    /// Returns the works whose kernels are told in the text: the last prompt, and the first and last batch after the
    /// first context.
    fn told(&self) -> Vec<&WorkFigures> {
        let prompt = self.works.iter().rfind(|work| work.prompt.is_some());
        let mut decodes = self.works.iter().filter(|work| work.prompt.is_none());
        let first = decodes.next();
        let last = decodes.rfind(|work| first.is_some_and(|first| first.context == work.context));
        prompt.into_iter().chain(first).chain(last).filter(|work| !work.kernels.is_empty()).collect()
    }
}

impl fmt::Display for Report {
    /// Tables for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}\n", self.headline(), self.device, self.limits_line())?;
        let names = self.works.iter().map(|work| work.work.len()).max().unwrap_or(0).max(4) + 1;
        writeln!(
            f,
            "{:<names$}{:>9}{:>15}{:>10}{:>9}{:>9}{:>8}{:>9}{:>9}",
            "work", "tokens/s", "from-to", "ms/step", "GFLOP/s", "of limit", "GB/s", "of limit", "outside"
        )?;
        for work in &self.works {
            let spread = &work.tokens_per_s;
            writeln!(
                f,
                "{:<names$}{:>9.0}{:>15}{:>10.2}{}{:>8.2}%",
                work.work,
                spread.median,
                format!("{:.0}-{:.0}", spread.min, spread.max),
                work.step_ms,
                RatesText(&work.rates),
                100.0 * work.outside_kernels
            )?;
        }
        for work in self.told() {
            let names = work.kernels.iter().map(|it| it.kernel.len()).max().unwrap_or(0).max(work.work.len()) + 1;
            writeln!(
                f,
                "\n{:<names$}{:>8}{:>10}{:>9}{:>9}{:>9}{:>8}{:>9}",
                work.work, "calls", "ms", "of time", "GFLOP/s", "of limit", "GB/s", "of limit"
            )?;
            for kernel in &work.kernels {
                let share = 100.0 * kernel.share_of_time;
                write!(f, "{:<names$}{:>8}{:>10.2}{share:>8.1}%", kernel.kernel, kernel.calls, kernel.ms)?;
                match &kernel.rates {
                    Some(rates) => writeln!(f, "{}", RatesText(rates))?,
                    None => writeln!(f)?,
                }
            }
        }
        writeln!(
            f,
            "\nMedians of {} samples. Limits are those of this run; weights and KV count once a step. Outside: of a step's\n\
             time, not in kernels. Kernels of every work are in --json and --html.",
            self.settings.samples
        )?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// Rates and their shares, in columns.
struct RatesText<'a>(&'a Rates);

impl fmt::Display for RatesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = self.0;
        let share = rates.share_of_multiplying.map_or("?".to_owned(), |share| format!("{:.0}%", 100.0 * share));
        let read = 100.0 * rates.share_of_reading;
        write!(f, "{:>9.0}{share:>9}{:>8.1}{read:>8.0}%", rates.gflop_per_s, rates.gb_per_s)
    }
}
