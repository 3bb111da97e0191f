//! How a run goes, while it goes: a line that changes where a person watches, a line now and then elsewhere.

use crate::output::{grouped, stderr_is_terminal};
use bench_serve::Live;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// How often a person sees it change.
const GLANCE: Duration = Duration::from_millis(250);
/// How often a log gets a line.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The bar.
const TEMPLATE: &str = "[{bar:24}] {pos}/{len} {msg}";

/// Shows the progress of a run.
pub(super) struct Watch {
    bar: Option<ProgressBar>,
    /// Events and seconds when it was last shown.
    last: (u64, f64),
}

impl Watch {
    /// A run with this model begins.
    pub(super) fn begin(model: &str) -> Self {
        let bar = stderr_is_terminal().then(|| {
            let style = ProgressStyle::with_template(TEMPLATE).expect("a test renders the template");
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        if bar.is_none() {
            eprintln!("asking {model}");
        }
        Self { bar, last: (0, 0.0) }
    }

    /// Returns how often it wants to be shown.
    pub(super) fn every(&self) -> Duration {
        if self.bar.is_some() { GLANCE } else { LINE_EVERY }
    }

    /// This is how it goes.
    pub(super) fn show(&mut self, live: &Live) {
        let text = self.line(live);
        match &self.bar {
            Some(bar) => {
                let ended = live.done + live.failed;
                bar.set_length(live.requests.unwrap_or(ended + live.in_flight));
                bar.set_position(ended);
                bar.set_message(text);
            }
            None => eprintln!("{} done, {text}", grouped(live.done)),
        }
    }

    /// A sentence that stays.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// The run ended; the bar goes.
    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&mut self, live: &Live) -> String {
        let (events, seconds) = std::mem::replace(&mut self.last, (live.events, live.elapsed_s));
        // A run that begins after the warm-up counts from 0 again.
        let rate = if live.elapsed_s > seconds && live.events >= events {
            (live.events - events) as f64 / (live.elapsed_s - seconds)
        } else {
            0.0
        };
        let what = if live.warming { "warming up: " } else { "" };
        let ttft = live.ttft_p50_ms().map_or(String::new(), |ms| format!(", TTFT P50 {ms:.1} ms"));
        let failed = if live.failed > 0 { format!("{} failed, ", grouped(live.failed)) } else { String::new() };
        let flight = grouped(live.in_flight);
        format!("{what}{failed}{flight} in flight, {:.0} s, {rate:.0} tokens/s{ttft}", live.elapsed_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_renders() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn rates_are_of_what_was_added() {
        let mut watch = Watch { bar: None, last: (0, 0.0) };
        let live = |events, elapsed_s, warming| {
            let mut live = Live::default();
            (live.events, live.elapsed_s, live.warming) = (events, elapsed_s, warming);
            live
        };
        assert_eq!(watch.line(&live(100, 2.0, true)), "warming up: 0 in flight, 2 s, 50 tokens/s");
        assert_eq!(watch.line(&live(30, 1.0, false)), "0 in flight, 1 s, 0 tokens/s");
        let mut some = live(60, 2.0, false);
        (some.failed, some.in_flight) = (2, 3);
        assert_eq!(watch.line(&some), "2 failed, 3 in flight, 2 s, 30 tokens/s");
    }
}
