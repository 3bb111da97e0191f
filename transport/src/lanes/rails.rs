//! Which rail of a link the next bytes come by, and which rails are put aside and taken back: decisions without a
//! clock, a socket or a device.
//!
//! The rails of a link are ways to the bytes of one peer that fail and slow one by one: connections over `tcp`,
//! devices over `rdma`. Time is an argument. What is deliberately absent: how a rail is ended, tried, or its reads
//! repeated, which is each lane's.

use crate::speed::link_speed::LinkSpeed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rails of a link, over all lanes.
pub(crate) const RAILS_MAX: usize = 16;

/// How often rails are judged while bytes are on their way.
const JUDGED_EVERY: Duration = Duration::from_millis(100);
/// Only a rail that is asked for so many bytes shows how fast it is: fewer say more of latency than of bandwidth.
const BULK_BYTES: u64 = 256 << 10;
/// So many bytes, or so long with bulk on its way, are one measurement of a rail.
const SAMPLE_BYTES: u64 = 1 << 20;
const SAMPLE_TIME: Duration = Duration::from_millis(50);
/// Weight of the newest measurement in the moving average.
const NEWEST: f64 = 0.5;
/// A rail is judged, and others by it, after so many measurements.
const SAMPLES_MIN: u32 = 3;
/// Others are judged by a rail that was measured within so long.
const RECENT: Duration = Duration::from_secs(1);
/// A rail that does less than this share of what the best other one does is put aside.
const SLOW_SHARE: f64 = 0.25;
/// One that does this share of it when it is tried is taken back.
const RETURN_SHARE: f64 = 0.5;
/// A rail by which nothing comes for so long, while others bring what is asked of them, is put aside.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// Who is to judge and comes later than by so much stood still. Less than what makes a rail silent among others.
const STOOD_STILL: Duration = Duration::from_millis(400);
/// A rail that was put aside is tried again after so long; each time that it is put aside again doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A rail that did well for so long is tried as soon as at first when it is put aside again.
const STEADY: Duration = Duration::from_secs(20);
/// A link none of whose rails can be used for so long is lost. Longer than a pause: the last one is tried once
/// more at least.
const NONE_UP_MAX: Duration = Duration::from_secs(10);
/// What a rail is taken for that was not measured, in bytes a second.
const UNMEASURED: f64 = 1e9;

/// Why a rail was put aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RailFault {
    /// It broke, or could not be connected.
    Failed,
    /// It does a small share of what the others do.
    Slow,
    /// Nothing comes by it, while the others bring what is asked of them, or for longer than the lane has patience.
    Silent,
}

impl RailFault {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Slow, Self::Silent];

    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Slow => "slow",
            Self::Silent => "silent",
        }
    }
}

/// The rails of a link.
#[derive(Debug)]
pub(crate) struct Rails {
    rails: Vec<Rail>,
    /// When they are judged next, if bytes are on their way.
    judged_at: Instant,
    /// Since when none is up.
    none_up: Option<Instant>,
    /// What is told of all that is due and comes.
    speed: Option<Arc<Mutex<LinkSpeed>>>,
}

#[derive(Debug)]
struct Rail {
    state: State,
    /// Bytes that it is asked for and has not brought.
    asked: u64,
    /// Of these, what nothing but the rail keeps from coming.
    due: u64,
    /// Bytes a second, by what it brought lately, or by the trial where it brought nothing since.
    bytes_per_s: f64,
    /// The same by its last trial alone. Trials of different rails are alike.
    tried_bytes_per_s: Option<f64>,
    samples: u32,
    sampled_at: Option<Instant>,
    /// What it brought since the last measurement while it had bulk to bring, and for how long it had.
    brought: u64,
    busy: Duration,
    busy_since: Option<Instant>,
    /// When it last brought something, or was first asked after it had brought all.
    heard: Instant,
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It is used, since then.
    Up(Instant),
    /// It is not used, and tried again then.
    Aside(Instant),
    /// It is being tried.
    Tried,
}

impl Rail {
    fn new(outcome: Option<Option<f64>>, now: Instant) -> Self {
        let measured = outcome.flatten();
        Self {
            state: if outcome.is_some() { State::Up(now) } else { State::Aside(now + PAUSE_MIN) },
            asked: 0,
            due: 0,
            bytes_per_s: measured.unwrap_or(UNMEASURED),
            tried_bytes_per_s: measured,
            samples: 0,
            sampled_at: None,
            brought: 0,
            busy: Duration::ZERO,
            busy_since: None,
            heard: now,
            pause: PAUSE_MIN,
        }
    }

    fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Accounts for the time until now.
    fn pass(&mut self, now: Instant) {
        if let Some(since) = self.busy_since.take() {
            self.busy += now.saturating_duration_since(since);
        }
        if self.due >= BULK_BYTES {
            self.busy_since = Some(now);
        }
    }

    fn measure(&mut self, now: Instant) {
        self.pass(now);
        if self.busy.is_zero() || (self.brought < SAMPLE_BYTES && self.busy < SAMPLE_TIME) {
            return;
        }
        let newest = self.brought as f64 / self.busy.as_secs_f64();
        self.bytes_per_s += if self.samples == 0 { 1.0 } else { NEWEST } * (newest - self.bytes_per_s);
        self.samples += 1;
        self.sampled_at = Some(now);
        (self.brought, self.busy) = (0, Duration::ZERO);
    }

    /// What others are judged by, if it was measured lately.
    fn standard(&self, now: Instant) -> Option<f64> {
        let recent = self.sampled_at.is_some_and(|at| now.saturating_duration_since(at) <= RECENT);
        (self.is_up() && self.samples >= SAMPLES_MIN && recent).then_some(self.bytes_per_s)
    }

    /// What it is certain to do: by its trial, and by what it brings with whatever else the ends have to do.
    fn certain(&self, now: Instant) -> Option<f64> {
        let tried = self.tried_bytes_per_s.filter(|_| self.is_up());
        match (tried, self.standard(now)) {
            (Some(tried), Some(lately)) => Some(tried.min(lately)),
            (tried, lately) => tried.or(lately),
        }
    }
}

impl Rails {
    /// The rails of a link that was just made. `trials`: how each one did, in bytes a second where that could be
    /// measured; `None`: it could not be connected.
    pub(crate) fn new(trials: &[Option<Option<f64>>], now: Instant) -> Self {
        let rails: Vec<Rail> = trials.iter().map(|&outcome| Rail::new(outcome, now)).collect();
        let none_up = (!rails.iter().any(Rail::is_up)).then_some(now);
        Self { rails, judged_at: now + JUDGED_EVERY, none_up, speed: None }
    }

    /// Says to `speed` from now on what is due over all rails, and what comes.
    pub(crate) fn tell(&mut self, speed: Arc<Mutex<LinkSpeed>>) {
        self.speed = Some(speed);
    }

    fn say(&self, say: impl FnOnce(&mut LinkSpeed, u64)) {
        if let Some(speed) = &self.speed {
            let due = self.rails.iter().map(|rail| rail.due).sum();
            say(&mut speed.lock().unwrap_or_else(PoisonError::into_inner), due);
        }
    }

    /// The rails of a link that was just made, of which those that are `there` are being tried.
    pub(crate) fn untried(there: &[bool], now: Instant) -> Self {
        let mut new = Self::new(&vec![None; there.len()], now);
        new.rails.iter_mut().zip(there).filter(|(_, there)| **there).for_each(|(rail, _)| rail.state = State::Tried);
        new
    }

    /// How many are used.
    pub(crate) fn up(&self) -> usize {
        self.rails.iter().filter(|rail| rail.is_up()).count()
    }

    /// Whether a rail is used.
    pub(crate) fn is_up(&self, rail: usize) -> bool {
        self.rails[rail].is_up()
    }

    /// Bytes a second of a rail.
    pub(crate) fn bytes_per_s(&self, rail: usize) -> f64 {
        self.rails[rail].bytes_per_s
    }

    /// The rail, of those that are used and have room, by which `bytes` more are there first.
    pub(crate) fn pick(&self, bytes: u64, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let seconds = |rail: &Rail| (rail.asked + bytes) as f64 / rail.bytes_per_s.max(1.0);
        let open = self.rails.iter().enumerate().filter(|&(place, rail)| rail.is_up() && has_room(place));
        open.min_by(|(_, one), (_, other)| seconds(one).total_cmp(&seconds(other))).map(|(place, _)| place)
    }

    /// A rail is asked for bytes. `due`: nothing else keeps them from coming.
    pub(crate) fn ask(&mut self, rail: usize, bytes: u64, due: bool, now: Instant) {
        self.rails[rail].asked += bytes;
        if due {
            self.add_due(rail, bytes, now);
            self.say(|speed, due| speed.asked(due, now));
        }
    }

    /// Nothing else keeps bytes from coming that a rail was asked for before.
    pub(crate) fn due(&mut self, rail: usize, bytes: u64, now: Instant) {
        self.add_due(rail, bytes, now);
        self.say(|speed, due| speed.due(due, now));
    }

    fn add_due(&mut self, rail: usize, bytes: u64, now: Instant) {
        if self.rails.iter().all(|rail| rail.due == 0) {
            self.judged_at = now + JUDGED_EVERY;
        }
        let rail = &mut self.rails[rail];
        if rail.due == 0 {
            rail.heard = now;
        }
        rail.due += bytes;
        rail.pass(now);
    }

    /// A rail brought bytes that were due.
    pub(crate) fn brought(&mut self, rail: usize, bytes: u64, now: Instant) {
        let rail = &mut self.rails[rail];
        if rail.busy_since.is_some() {
            rail.brought += bytes;
        }
        rail.asked = rail.asked.saturating_sub(bytes);
        rail.due = rail.due.saturating_sub(bytes);
        rail.heard = now;
        rail.pass(now);
        self.say(|speed, due| {
            speed.brought(bytes, now);
            speed.due(due, now);
        });
    }

    /// Bytes that a rail was asked for are not wanted any more.
    pub(crate) fn take_back(&mut self, rail: usize, bytes: u64, due: bool, now: Instant) {
        let rail = &mut self.rails[rail];
        rail.asked = rail.asked.saturating_sub(bytes);
        rail.due = rail.due.saturating_sub(if due { bytes } else { 0 });
        rail.pass(now);
        self.say(|speed, due| speed.due(due, now));
    }

    /// Judges the rails, if it is time to: one that has to be put aside, and why. Whoever asks puts it aside and
    /// asks again. Who asks so late that it must have stood still itself heard nothing of any rail meanwhile, and
    /// none is blamed for that.
    pub(crate) fn judge(&mut self, now: Instant) -> Option<(usize, RailFault)> {
        if now < self.judged_at || self.up() < 2 {
            return None;
        }
        let late = now - self.judged_at;
        if late >= STOOD_STILL {
            for rail in &mut self.rails {
                rail.heard = (rail.heard + late).min(now);
                rail.busy_since = rail.busy_since.map(|_| now);
            }
            self.judged_at = now + JUDGED_EVERY;
            return None;
        }
        self.rails.iter_mut().for_each(|rail| rail.measure(now));
        let fault = (0..self.rails.len()).find_map(|place| Some((place, self.fault(place, now)?)));
        if fault.is_none() {
            self.judged_at = now + JUDGED_EVERY;
        }
        fault
    }

    fn fault(&self, place: usize, now: Instant) -> Option<RailFault> {
        let rail = &self.rails[place];
        let others = || self.rails.iter().enumerate().filter(|&(other, rail)| other != place && rail.is_up());
        if !rail.is_up() {
            return None;
        }
        let silent = rail.due > 0
            && now.saturating_duration_since(rail.heard) >= SILENT_MAX
            && others().any(|(_, other)| other.heard > rail.heard + SILENT_MAX / 2);
        if silent {
            return Some(RailFault::Silent);
        }
        let best = others().filter_map(|(_, other)| other.standard(now)).fold(0.0, f64::max);
        let slow = rail.samples >= SAMPLES_MIN && rail.bytes_per_s < SLOW_SHARE * best;
        slow.then_some(RailFault::Slow)
    }

    /// The rail that has brought nothing of what is due for the longest, and since when. Over `tcp` the kernel
    /// ends such a connection.
    pub(crate) fn mute(&self) -> Option<(usize, Instant)> {
        let due = self.rails.iter().enumerate().filter(|(_, rail)| rail.is_up() && rail.due > 0);
        due.map(|(place, rail)| (place, rail.heard)).min_by_key(|&(_, heard)| heard)
    }

    /// A rail is not used any more until it did well when tried again; nothing is asked of it.
    pub(crate) fn put_aside(&mut self, rail: usize, now: Instant) {
        let rail = &mut self.rails[rail];
        if let State::Up(since) = rail.state
            && now.saturating_duration_since(since) >= STEADY
        {
            rail.pause = PAUSE_MIN;
        }
        rail.state = State::Aside(now + rail.pause);
        rail.pause = (rail.pause * 2).min(PAUSE_MAX);
        (rail.asked, rail.due, rail.brought, rail.busy, rail.busy_since) = (0, 0, 0, Duration::ZERO, None);
        (rail.samples, rail.sampled_at) = (0, None);
        self.say(|speed, due| speed.due(due, now));
        if self.up() == 0 {
            self.none_up.get_or_insert(now);
        }
    }

    /// A rail that is to be tried now, of those that can be: from now on it is.
    pub(crate) fn next_trial(&mut self, now: Instant, can_be: impl Fn(usize) -> bool) -> Option<usize> {
        let is_due = |rail: &Rail| matches!(rail.state, State::Aside(until) if until <= now);
        let place = (0..self.rails.len()).find(|&place| is_due(&self.rails[place]) && can_be(place))?;
        self.rails[place].state = State::Tried;
        Some(place)
    }

    /// A rail was tried: how it did, in bytes a second where that could be measured. Whether it is taken back;
    /// else it is put aside again.
    pub(crate) fn tried(&mut self, rail: usize, outcome: Option<Option<f64>>, now: Instant) -> bool {
        let best = self.rails.iter().filter_map(|rail| rail.certain(now)).fold(0.0, f64::max);
        match outcome {
            Some(measured) if measured.is_none_or(|bytes_per_s| bytes_per_s >= RETURN_SHARE * best) => {
                let pause = self.rails[rail].pause;
                self.rails[rail] = Rail { pause, ..Rail::new(outcome, now) };
                self.none_up = None;
                true
            }
            _ => {
                self.put_aside(rail, now);
                false
            }
        }
    }

    /// Whether the link is of no use any more.
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        self.none_up.is_some_and(|since| now.saturating_duration_since(since) >= NONE_UP_MAX)
    }

    /// When to judge, to try, or to give up next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let trials = self.rails.iter().filter_map(|rail| match rail.state {
            State::Aside(until) => Some(until),
            State::Up(_) | State::Tried => None,
        });
        let judged = (self.up() >= 2 && self.rails.iter().any(|rail| rail.due > 0)).then_some(self.judged_at);
        trials.chain(judged).chain(self.none_up.map(|since| since + NONE_UP_MAX)).min()
    }
}

#[cfg(test)]
mod tests;
