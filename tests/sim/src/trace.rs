//! What happened, a line each, for those who look into a seed.

use domain::Time;

/// Where the lines go.
#[derive(Default)]
pub(crate) enum Trace {
    /// Nobody looks.
    #[default]
    Off,
    /// Kept.
    Kept(Vec<String>),
    /// Printed as they come.
    Printed,
}

impl Trace {
    /// Notes a line; it is made only where somebody looks.
    pub(crate) fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        match self {
            Trace::Off => {}
            Trace::Kept(lines) => lines.push(format!("{now} {}", line())),
            Trace::Printed => println!("{now} {}", line()),
        }
    }
}
