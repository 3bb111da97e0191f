//! A run: each length by itself, with a server that computes the prompts and has every tier, and one more for each
//! tier that outlives it. Of host memory nothing outlives a server, and the fastest tier answers first; so each is
//! asked while no faster one is there.

use crate::bounds::{DECODED, TURNS};
use crate::error::BenchError;
use crate::limits::{RawReads, copies, now, seconds_since};
use crate::report::{PromptFigures, Report, Row, Spread, Wear};
use crate::server::{GLANCE, SOURCES, Server};
use crate::subject::{Settings, Subject};
use domain::Encoding;
use kv_manager::tiers::Tier;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;

/// A prompt of whose full blocks a smaller share than this came from a place does not count for it.
const SHARE_MIN: f64 = 0.9;
/// Seconds that tiers may take for what was computed.
const WRITTEN_S_MAX: f64 = 120.0;
/// Of the raw read: what a disk hit may take beside a decode step.
pub(crate) const DISK_GOAL: f64 = 1.3;
/// Of the plain copy: what a host hit may take beside a decode step.
pub(crate) const HOST_GOAL: f64 = 2.0;

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

/// Runs the measurement; `progress` is called before each part. Errors: a server does not do what it should, or the
/// system refuses memory or files.
pub fn measure(
    subject: &Subject,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, BenchError> {
    settings.check(subject)?;
    let total = settings.prompts.len() * (2 + settings.tiers.len());
    let mut run = Run {
        subject,
        settings,
        progress,
        done: 0,
        total,
        moved: BTreeMap::new(),
        mover: String::new(),
        notes: Vec::new(),
    };
    let prompts = settings.prompts.iter().map(|&tokens| run.length(tokens)).collect::<Result<_, _>>()?;
    let Run { moved, mover, notes, .. } = run;
    let wear = |(tier, [written, read]): (Tier, [u64; 2])| Wear { tier: tier.name(), written, read };
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        model: subject.name.clone(),
        settings: settings.clone(),
        mover,
        prompts,
        wear: moved.into_iter().map(wear).collect(),
        notes,
    })
}

struct Run<'a> {
    subject: &'a Subject,
    settings: &'a Settings,
    progress: &'a mut dyn FnMut(&Progress),
    done: usize,
    total: usize,
    /// Bytes that were written to each tier and read from it.
    moved: BTreeMap<Tier, [u64; 2]>,
    mover: String,
    notes: Vec<String>,
}

/// Prompts of a length, and what is known of them.
struct Prompts {
    tokens: u32,
    /// Tokens of one that have to come from a place to count for it.
    least: f64,
    all: Vec<Vec<u32>>,
    /// What was answered when they were computed.
    texts: Vec<String>,
    /// Tiers give back about what they were given, so that answers may differ.
    is_lossy: bool,
}

/// What prompts from tiers are compared with.
struct Base {
    computed: Spread,
    device: Spread,
    /// The fewest tokens of a prompt that came from the device.
    device_tokens: u64,
    /// Seconds of a step that decodes one sequence.
    step: Spread,
}

/// Times to first tokens of prompts from one place.
#[derive(Default)]
struct Samples {
    seconds: Vec<f64>,
    /// The fewest tokens that came from there.
    tokens: Option<u64>,
    /// Prompts that did not come from there.
    others: usize,
    /// Answers that were others than when the prompts were computed.
    differ: usize,
    /// What came from where of the last of those, in words.
    came: String,
}

impl Run<'_> {
    fn tell(&mut self, what: String) {
        (self.progress)(&Progress { what, done: self.done, total: self.total });
        self.done += 1;
    }

    fn length(&mut self, tokens: u32) -> Result<PromptFigures, BenchError> {
        let folder = self.subject.folder.join(tokens.to_string());
        fs::create_dir_all(&folder)?;
        let figures = self.in_folder(tokens, &folder);
        // What cannot be removed is in the way of nobody.
        let _ = fs::remove_dir_all(&folder);
        figures
    }

    fn in_folder(&mut self, tokens: u32, folder: &Path) -> Result<PromptFigures, BenchError> {
        let (subject, settings) = (self.subject, self.settings);
        let records = subject.records(tokens);
        self.tell(format!("plain copies and reads of as much as {tokens} tokens have"));
        let memcpy = Spread::of(&copies(&records, settings.rounds + 1)?[1..]);
        let raw = self.raw_reads(tokens, folder)?;
        // Other programs use the disk, too, in bursts. So where there is a disk tier, each of its reads has a raw one
        // right before it.
        let mut reads = Vec::new();
        if !settings.tiers.contains(&Tier::Disk) {
            reads = (0..settings.rounds).map(|round| raw.read(round % TURNS)).collect::<Result<_, _>>()?;
        }
        let mut prompts = Prompts::new(subject, tokens);
        let server = Server::start(subject, tokens, &settings.tiers, folder)?;
        let base = self.measure_base(&server, &mut prompts)?;
        let mut rows = vec![base.row("computed", base.computed, 0, None)];
        rows.push(base.row("device", base.device, base.device_tokens, None));
        let mut first = Some(server);
        for &tier in &settings.tiers {
            let server = self.server_for(tier, first.take(), tokens, folder)?;
            let (came, least) = self.measure_tier(tier, &server, &prompts, &raw, &mut reads)?;
            // A step that is lost in the noise makes no goal smaller.
            let step_s = base.step.median.max(0.0);
            let goal = match tier {
                Tier::Host => Some(HOST_GOAL * memcpy.median + step_s),
                Tier::Disk => Some(DISK_GOAL * Spread::of(&reads).median + step_s),
                Tier::Neighbours | Tier::Object => None,
            };
            rows.push(base.row(tier.name(), came, least, goal));
        }
        let bytes = records.iter().map(|&(len, count)| len * count as usize).sum();
        let (read_s, decode_step_s) = (Spread::of(&reads), base.step);
        Ok(PromptFigures { tokens, bytes, memcpy_s: memcpy, read_s, decode_step_s, rows })
    }

    /// Measures prompts that are computed, that come from the device, and steps that decode. Returns when all tiers
    /// hold the prompts.
    fn measure_base(&mut self, server: &Server, prompts: &mut Prompts) -> Result<Base, BenchError> {
        let tokens = prompts.tokens;
        self.tell(format!("prompts of {tokens} tokens, computed and from the device"));
        let (mut computed, mut device, mut steps) = (Samples::default(), Samples::default(), Vec::new());
        for turn in 0..TURNS {
            let answer = prompts.ask(server, turn, "computed", &mut computed)?;
            prompts.texts.push(answer);
            let before = device.seconds.len();
            for _ in 0..self.settings.rounds {
                prompts.ask(server, turn, "device", &mut device)?;
            }
            let whole = server.ask(&prompts.all[turn], 1 + DECODED)?.seconds;
            if device.seconds.len() > before {
                steps.push((whole - Spread::of(&device.seconds[before..]).median) / f64::from(DECODED));
            }
            self.written(server, tokens, turn + 1)?;
        }
        let (computed, _) = self.spread(computed, tokens, "computed")?;
        let (device, device_tokens) = self.spread(device, tokens, "device")?;
        Ok(Base { computed, device, device_tokens, step: Spread::of(&steps) })
    }

    /// Returns a server whose prompts come from the tier. The first server has what was computed in its memory. Other
    /// servers find it where it outlived that one.
    fn server_for(
        &mut self,
        tier: Tier,
        before: Option<Server>,
        tokens: u32,
        folder: &Path,
    ) -> Result<Server, BenchError> {
        match (tier, before) {
            (Tier::Host, Some(server)) => Ok(server),
            (_, ended) => {
                self.count_moves(ended.as_ref())?;
                drop(ended);
                let server = Server::start(self.subject, tokens, &[tier], folder)?;
                self.written(&server, tokens, TURNS)?;
                Ok(server)
            }
        }
    }

    /// Measures prompts that come from a tier, and raw reads where it is the disk. Returns the spread, and the fewest
    /// tokens that came from there.
    fn measure_tier(
        &mut self,
        tier: Tier,
        server: &Server,
        prompts: &Prompts,
        raw: &RawReads,
        reads: &mut Vec<f64>,
    ) -> Result<(Spread, u64), BenchError> {
        self.tell(format!("prompts of {} tokens, from {}", prompts.tokens, tier.name()));
        let mut samples = Samples::default();
        for turn in (0..self.settings.rounds).flat_map(|_| 0..TURNS) {
            if tier == Tier::Disk {
                reads.push(raw.read(turn)?);
            }
            prompts.ask(server, turn, tier.name(), &mut samples)?;
        }
        self.count_moves(Some(server))?;
        self.spread(samples, prompts.tokens, tier.name())
    }

    fn raw_reads(&mut self, tokens: u32, folder: &Path) -> Result<RawReads, BenchError> {
        let depth = self.subject.depth;
        let raw = RawReads::new(self.subject.records(tokens), depth, folder)?;
        self.mover = format!("the mover `file` by {}, {depth} reads under way", raw.mover());
        if let Some(why) = raw.buffered() {
            let note = format!("The page cache is in the way of disk and raw reads: {why}. Name a --folder on a disk.");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        Ok(raw)
    }

    /// Waits until all tiers of the run hold that many of the prompts.
    fn written(&self, server: &Server, tokens: u32, prompts: usize) -> Result<(), BenchError> {
        let records: u32 = self.subject.records(tokens).iter().map(|&(_, count)| count).sum();
        let expected = u64::from(records) * prompts as u64;
        let begin = now();
        loop {
            let counts = server.counts()?;
            let Some(&behind) = server.tiers().iter().find(|tier| counts.held(**tier) < expected) else {
                return Ok(());
            };
            if seconds_since(begin) > WRITTEN_S_MAX {
                let (tier, held, seconds) = (behind.name(), counts.held(behind), WRITTEN_S_MAX as u64);
                return Err(BenchError::NotWritten { tier, held, expected, seconds });
            }
            sleep(GLANCE);
        }
    }

    /// Adds up what a server that ends moved.
    fn count_moves(&mut self, server: Option<&Server>) -> Result<(), BenchError> {
        let Some(server) = server else { return Ok(()) };
        let counts = server.counts()?;
        for &tier in server.tiers() {
            let [written, read] = counts.moved(tier);
            let moved = self.moved.entry(tier).or_default();
            *moved = [moved[0] + written, moved[1] + read];
        }
        Ok(())
    }

    /// Returns the spread of the samples, and the fewest tokens that came from the place. Errors: none came from
    /// there.
    fn spread(&mut self, samples: Samples, tokens: u32, place: &'static str) -> Result<(Spread, u64), BenchError> {
        let Samples { seconds, tokens: least, others, differ, came } = samples;
        let Some(least) = least else { return Err(BenchError::Elsewhere { tokens, place, came }) };
        if others > 0 {
            let all = seconds.len() + others;
            self.notes.push(format!(
                "{others} of {all} prompts of {tokens} tokens did not come from {place} (the last: {came}) and do not count."
            ));
        }
        if differ > 0 {
            let (encoding, all) = (self.subject.layout.encoding, seconds.len() + others);
            self.notes.push(format!(
                "{differ} of {all} prompts of {tokens} tokens had another answer from {place}, which keeps KV as {encoding}."
            ));
        }
        Ok((Spread::of(&seconds), least))
    }
}

impl Base {
    /// Compares prompts from a place with those that were computed and those from the device.
    fn row(&self, place: &'static str, first: Spread, tokens: u64, goal: Option<f64>) -> Row {
        Row {
            place,
            first_token_s: first,
            tokens,
            of_computing: first.median / self.computed.median,
            over_device_s: first.median - self.device.median,
            goal_s: goal,
            of_goal: goal.map(|goal| first.median / goal),
        }
    }
}

impl Prompts {
    /// Prompts of so many tokens, one for each turn.
    fn new(subject: &Subject, tokens: u32) -> Self {
        Self {
            tokens,
            least: SHARE_MIN * f64::from(subject.blocks(tokens) * subject.layout.block_tokens),
            all: (0..TURNS).map(|turn| subject.prompt(tokens, turn)).collect(),
            texts: Vec::new(),
            is_lossy: subject.layout.encoding != Encoding::Exact,
        }
    }

    /// Asks for the first token of a prompt that should come from the place; the answer. Errors: it is another
    /// than when the prompt was computed.
    fn ask(
        &self,
        server: &Server,
        turn: usize,
        place: &'static str,
        samples: &mut Samples,
    ) -> Result<String, BenchError> {
        let tokens = self.tokens;
        let before = server.counts()?.tokens();
        let answer = server.ask(&self.all[turn], 1)?;
        let after = server.counts()?.tokens();
        if self.texts.get(turn).is_some_and(|text| *text != answer.text) {
            if !self.is_lossy {
                return Err(BenchError::Differs { tokens, place });
            }
            samples.differ += 1;
        }
        let came: Vec<u64> = after.iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect();
        let from = SOURCES.iter().zip(&came).find(|(source, _)| **source == place).map_or(0, |(_, tokens)| *tokens);
        if (from as f64) < self.least {
            samples.others += 1;
            let parts = SOURCES.iter().zip(&came).filter(|(_, tokens)| **tokens > 0);
            samples.came = parts.map(|(source, tokens)| format!("{tokens} {source}")).collect::<Vec<_>>().join(", ");
        } else {
            samples.seconds.push(answer.seconds);
            samples.tokens = Some(samples.tokens.map_or(from, |least| least.min(from)));
        }
        Ok(answer.text)
    }
}
