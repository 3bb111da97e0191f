//! What the kernel says of the threads of this process, in `/proc/self/task`.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Where each thread has a folder.
const TASKS: &str = "/proc/self/task";
/// The kernel's unit of processor time, as it is shown: 100 a second on every architecture that Baton is built for.
const TICK: Duration = Duration::from_millis(10);
/// Fields of `stat` behind the name: the state, and where processor time stands, of the program and of the kernel.
const STATE: usize = 0;
const TIMES: [usize; 2] = [11, 12];

/// Whether a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or waits for a processor.
    Running,
    /// It waits, and can be woken.
    Sleeping,
    /// It waits for a device, such as a disk, and cannot be woken.
    Disk,
    /// A signal stopped it.
    Stopped,
    /// A debugger stopped it.
    Traced,
    /// It is ending.
    Ended,
}

/// A thread, as the kernel sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) cpu: Duration,
    pub(crate) kernel: String,
}

impl State {
    /// Returns it in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Disk => "disk",
            Self::Stopped => "stopped",
            Self::Traced => "traced",
            Self::Ended => "ended",
        }
    }

    fn of_letter(letter: &str) -> Option<Self> {
        Some(match letter {
            "R" => Self::Running,
            "S" | "I" => Self::Sleeping,
            "D" => Self::Disk,
            "T" => Self::Stopped,
            "t" => Self::Traced,
            "Z" | "X" => Self::Ended,
            _ => return None,
        })
    }
}

/// Lists at most so many threads of this process, and counts those beyond. None where the system shows none.
pub(crate) fn threads(most: usize) -> (Vec<Seen>, usize) {
    let Ok(folders) = fs::read_dir(TASKS) else { return (Vec::new(), 0) };
    let mut ids: Vec<u32> = folders.flatten().filter_map(|folder| folder.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    let left_out = ids.len().saturating_sub(most);
    ids.truncate(most);
    // A thread that ended meanwhile has no files.
    (ids.into_iter().filter_map(|id| seen(&Path::new(TASKS).join(id.to_string()), id)).collect(), left_out)
}

/// Reads what the kernel shows in a thread's folder.
fn seen(folder: &Path, id: u32) -> Option<Seen> {
    let stat = fs::read(folder.join("stat")).ok()?;
    let kernel = fs::read_to_string(folder.join("wchan")).unwrap_or_default();
    // It says 0 of a thread that runs, and where it may not say.
    let kernel = if kernel == "0" { String::new() } else { kernel };
    parse(&String::from_utf8_lossy(&stat), id, kernel)
}

/// Reads a line of `stat`: a number, the name in brackets, which may hold brackets, and fields.
fn parse(stat: &str, id: u32, kernel: String) -> Option<Seen> {
    let (begin, fields) = stat.rsplit_once(") ")?;
    let (_, name) = begin.split_once(" (")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let state = State::of_letter(fields.get(STATE)?)?;
    let ticks = TIMES.iter().map(|&at| fields.get(at)?.parse::<u32>().ok()).sum::<Option<u32>>()?;
    Some(Seen { id, name: name.to_owned(), state, cpu: TICK * ticks, kernel })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_whatever_the_name_holds() {
        let stat = "77 (a) S (b) t 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 1\n";
        let expect = Seen {
            id: 77,
            name: "a) S (b".to_owned(),
            state: State::Traced,
            cpu: Duration::from_millis(1750),
            kernel: "ptrace_stop".to_owned(),
        };
        assert_eq!(parse(stat, 77, "ptrace_stop".to_owned()), Some(expect));
        for wrong in ["", "77 (a", "77 (a) ", "77 (a) S 1 2", "77 (a) ? 1 2 3 4 5 6 7 8 9 10 150 25"] {
            assert_eq!(parse(wrong, 77, String::new()), None, "{wrong}");
        }
    }

    #[test]
    fn a_list_has_a_bound() {
        let (all, none) = threads(usize::MAX);
        assert!(all.iter().any(|seen| seen.id == rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()));
        assert_eq!(none, 0);
        let (one, others) = threads(1);
        assert!(one.len() <= 1 && others + 1 >= 1.max(all.len().min(2)), "{others} more");
    }
}
