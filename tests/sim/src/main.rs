//! `sim`: runs seeds of the simulator. `cargo xtask sim` calls it.

use sim::{Found, Subset, replay, run_seeds, shrink};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask sim --seed N [--verbose] [--faults 0,2] [--requests 1,5]
       cargo xtask sim --seeds N [--from N] [--threads N] [--coverage]

  --seed N        run this seed; --verbose prints what happens, a line each
  --faults, --requests   only these of the seed's, by number
  --seeds N       run so many seeds, beginning with --from (0), on --threads (2)
  --coverage      fail where a fault was never seen in a step of the protocol
";

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(|arguments| arguments.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    verbose: bool,
    part: Subset,
    seeds: Option<u64>,
    from: u64,
    threads: Option<usize>,
    coverage: bool,
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        while let Some(flag) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{flag} wants a value"));
            match flag.as_str() {
                "--seed" => arguments.seed = Some(number(&value()?)?),
                "--verbose" => arguments.verbose = true,
                "--faults" => arguments.part.faults = Some(numbers(&value()?)?),
                "--requests" => arguments.part.requests = Some(numbers(&value()?)?),
                "--seeds" => arguments.seeds = Some(number(&value()?)?),
                "--from" => arguments.from = number(&value()?)?,
                "--threads" => arguments.threads = Some(number(&value()?)?),
                "--coverage" => arguments.coverage = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(arguments)
    }

    fn run(&self) -> Result<(), String> {
        match (self.seed, self.seeds) {
            (Some(seed), None) => self.one(seed),
            (None, Some(seeds)) => self.many(seeds),
            _ => Err(USAGE.to_owned()),
        }
    }

    fn one(&self, seed: u64) -> Result<(), String> {
        let outcome = replay(seed, &self.part, self.verbose);
        println!("seed {seed}: {} events, {} of virtual time", outcome.events, outcome.time);
        match outcome.violation {
            None => Ok(()),
            Some(violation) => Err(format!("{}: {}, at {}", violation.law, violation.what, violation.at)),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it says how many seeds ran in a second")]
    fn many(&self, seeds: u64) -> Result<(), String> {
        let began = std::time::Instant::now();
        let batch = run_seeds(self.from..self.from + seeds, self.threads.unwrap_or(2));
        let seconds = began.elapsed().as_secs_f64();
        println!("{}\n", batch.coverage);
        let rate = batch.seeds as f64 / seconds;
        println!("{} seeds, {} events, {seconds:.1} s: {rate:.1} seeds a second", batch.seeds, batch.events);
        if let Some(found) = &batch.found {
            return Err(tell(found));
        }
        let missing = batch.coverage.missing();
        if self.coverage && !missing.is_empty() {
            return Err(format!("never seen: {}", missing.join("; ")));
        }
        Ok(())
    }
}

/// A violation, and how to see it again.
fn tell(found: &Found) -> String {
    let part = shrink(found);
    let list = |numbers: Vec<String>| numbers.join(",");
    let faults = list(part.faults.iter().flatten().map(usize::to_string).collect());
    let requests = list(part.requests.iter().flatten().map(u64::to_string).collect());
    let Found { seed, violation } = found;
    format!(
        "seed {seed} violates \"{}\" at {}: {}\n  all of it:  cargo xtask sim --seed {seed} --verbose\n  enough:     cargo \
         xtask sim --seed {seed} --verbose --faults \"{faults}\" --requests \"{requests}\"",
        violation.law, violation.at, violation.what
    )
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn numbers<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').filter(|text| !text.is_empty()).map(number).collect()
}
