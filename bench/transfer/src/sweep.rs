//! The sweep: every lane by every cell, beside the machine's limits.

use crate::ends::{Owner, Reader, Reads, nowhere, own_beside};
use crate::error::BenchError;
use crate::files::{FILE_BLOCKS_MAX, RunFiles};
use crate::objects::{OBJECTS_MAX, Objects};
use crate::own::Own;
use crate::pool::{Pool, clear, is_filled, pool};
use crate::report::{READ, Report, Row};
use crate::settings::{Cell, Over, OwnerAddress, Settings, Wire};
use crate::timed::timed;
use crate::turns::Passes;
use crate::{latency, stream};
use std::collections::BTreeSet;
use transport::{Hub, Lane, Memory};

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is measured now.
    pub what: String,
    /// Parts that are done.
    pub done: usize,
    /// All parts.
    pub total: usize,
}

/// A run that is under way.
struct Sweep<'a> {
    settings: &'a Settings,
    cells: Vec<Cell>,
    progress: &'a mut dyn FnMut(&Progress),
    done: usize,
    total: usize,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Measures reads from `owner`, which the lane `local` does not need, and the limits of this machine where
/// `limits` says so: they mean nothing beside an owner of another. Writes and reads files and objects, which no
/// owner has. Errors: [`BenchError`].
pub fn sweep(
    settings: &Settings,
    owner: Option<&OwnerAddress>,
    limits: bool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, BenchError> {
    let cells = settings.cells()?;
    let wires: Vec<Wire> = settings.over.iter().filter_map(|over| over.wire()).collect();
    let sizes: BTreeSet<usize> = cells.iter().map(|cell| cell.bytes).filter(|_| limits && !wires.is_empty()).collect();
    let of = |over: &Over| cells.iter().filter(|&&cell| over.takes(cell)).count();
    let total = settings.over.iter().map(of).sum::<usize>() + sizes.len() + usize::from(!sizes.is_empty());
    let mut sweep = Sweep { settings, cells, progress, done: 0, total, rows: Vec::new(), notes: Vec::new() };
    if !wires.is_empty() {
        let ours = pool(settings.pool_bytes)?;
        sweep.limits(&sizes, &ours)?;
        wires.iter().try_for_each(|&wire| sweep.peer(wire, owner, &ours))?;
    }
    for over in &settings.over {
        match over {
            Over::Peer(_) => {}
            Over::File => sweep.files()?,
            Over::Object => sweep.objects()?,
        }
    }
    if !sizes.is_empty() {
        sweep.part("latency of one read".to_owned());
        let rows = latency::rows(&wires)?;
        sweep.rows.extend(rows);
    }
    let Sweep { rows, notes, .. } = sweep;
    Ok(Report { version: env!("CARGO_PKG_VERSION"), settings: settings.clone(), notes, rows })
}

impl Sweep<'_> {
    fn part(&mut self, what: String) {
        (self.progress)(&Progress { what, done: self.done, total: self.total });
        self.done += 1;
    }

    fn cells(&self, over: Over) -> Vec<Cell> {
        self.cells.iter().copied().filter(|&cell| over.takes(cell)).collect()
    }

    /// Says what is true of all cells once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn limits(&mut self, sizes: &BTreeSet<usize>, ours: &Pool) -> Result<(), BenchError> {
        if sizes.is_empty() {
            return Ok(());
        }
        let theirs = pool(self.settings.pool_bytes)?;
        for &bytes in sizes {
            self.part(format!("limits, blocks of {bytes}"));
            let rows = limit_rows(self.settings, &theirs, ours, bytes)?;
            self.rows.extend(rows);
        }
        Ok(())
    }

    fn peer(&mut self, wire: Wire, owner: Option<&OwnerAddress>, ours: &Pool) -> Result<(), BenchError> {
        let hub = Hub::new();
        // Where it is this process, for as long as it is read.
        let own = match wire.lane {
            Lane::Local => Some(own_beside(&hub, self.settings.pool_bytes, nowhere(), &self.settings.trust)?),
            _ => None,
        };
        let owner = own.as_ref().map(Owner::place).or_else(|| owner.cloned());
        let owner = owner.ok_or_else(|| BenchError::Owner("is not known".to_owned()))?;
        let reader = Reader::connect(&hub, wire, self.settings, &owner, ours.clone())?;
        for cell in self.cells(Over::Peer(wire)) {
            self.part(format!("{wire}, blocks of {}", cell.bytes));
            let row = measure(self.settings, &reader, wire, cell, ours)?;
            self.rows.push(row);
        }
        Ok(())
    }

    fn files(&mut self) -> Result<(), BenchError> {
        let files = RunFiles::new(self.settings);
        for cell in self.cells(Over::File) {
            self.part(format!("{}, blocks of {}", Over::File, cell.bytes));
            let own = Own::new(self.settings, cell, FILE_BLOCKS_MAX)?;
            let storage = files.open(cell, &own)?;
            self.note(files.told(&storage));
            self.rows.extend(own.rows(Over::File, &storage)?);
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<(), BenchError> {
        let Some(store) = &self.settings.store else {
            return Err(BenchError::Settings("the lane object wants a store".to_owned()));
        };
        self.note(format!(
            "object: bucket {} of {}, at most {OBJECTS_MAX} objects a pass",
            store.bucket, store.endpoint
        ));
        for cell in self.cells(Over::Object) {
            self.part(format!("{}, blocks of {}", Over::Object, cell.bytes));
            let own = Own::new(self.settings, cell, OBJECTS_MAX)?;
            let storage = Objects::new(store, cell, &own)?;
            let rows = own.rows(Over::Object, &storage);
            if !self.settings.keep {
                storage.remove(own.blocks())?;
            }
            self.rows.extend(rows?);
        }
        Ok(())
    }
}

/// Returns the row of a cell of a peer.
fn measure(settings: &Settings, reader: &Reader, over: Wire, cell: Cell, ours: &Pool) -> Result<Row, BenchError> {
    // Prepared once and posted again in every pass, as an engine would that reads the same blocks again.
    let (transfers, preparing) = reader.prepare(cell)?;
    let reads = Reads { reader, transfers: &transfers };
    let mut passes = Passes::new(preparing, transfers.len());
    // The first pass touches memory, and may find connections cold.
    passes.pass(&reads, cell.in_flight)?;
    passes.forget();
    for _ in 0..settings.passes {
        let pass = compared(ours, || passes.pass(&reads, cell.in_flight))?;
        pass.ok_or_else(|| BenchError::Wrong { over: over.to_string(), bytes: cell.bytes })?;
    }
    Ok(passes.row(over.to_string(), READ, cell, ours.len() / cell.bytes))
}

/// Runs a pass over a pool that is cleared before, so that a pass which moves nothing is noticed. The pool is compared
/// after it. Neither counts as time of the pass. `None`: what is there is not the owner's.
fn compared<T>(ours: &Pool, pass: impl FnOnce() -> Result<T, BenchError>) -> Result<Option<T>, BenchError> {
    clear(ours);
    let passed = pass()?;
    Ok(is_filled(ours).then_some(passed))
}

/// Measures what plain copies on one thread do, between two memories of this process, and a plain stream.
fn limit_rows(settings: &Settings, from: &Pool, to: &Pool, bytes: usize) -> Result<[Row; 2], BenchError> {
    let copy = || {
        for at in (0..from.len()).step_by(bytes) {
            // SAFETY: both memories are as long, apart, and nobody else uses them now.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), to.as_ptr().add(at), bytes) };
        }
        std::hint::black_box(to.as_ptr());
        Ok(())
    };
    let blocks = (from.len() / bytes) as f64;
    let row = |peer, lane: &str, seconds: f64| Row::plain(peer, lane.to_owned(), bytes, 1, seconds / blocks);
    Ok([
        row("memcpy", "this process", timed(settings.passes, copy)?),
        row("stream", "loopback", stream::pass(settings.passes, from, to, bytes)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_moves_nothing_is_wrong_whatever_came_before() {
        let (theirs, ours) = (pool(1 << 16).expect("memory"), pool(1 << 16).expect("memory"));
        let copy = || {
            // SAFETY: both memories are as long, apart, and nobody else uses them.
            unsafe { std::ptr::copy_nonoverlapping(theirs.as_ptr(), ours.as_ptr(), ours.len()) };
            Ok(7)
        };
        assert_eq!(compared(&ours, copy).expect("it passes"), Some(7));
        assert_eq!(compared(&ours, || Ok(7)).expect("it passes"), None);
    }
}
