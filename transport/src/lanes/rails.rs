//! Decides by which rail of a link the next bytes come, which rails are put aside, when those are tried again, and
//! when a link without rails is given up. One policy for all lanes, without a clock, a socket or a device.
//!
//! The rails of a link are ways to the bytes of one peer that fail and slow down one by one: connections over `tcp`,
//! pairs of ports over `rdma`. Time is an argument. What is deliberately absent: how a rail is ended or tried, and how
//! its reads are repeated. Each lane does that in its `recovery`, by the steps that [`Rails::next_step`] names.

use crate::speed::bandwidth::{BULK_BYTES, Bandwidth, SAMPLE_BYTES, Sample};
use crate::speed::link_speed::LinkSpeed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rails of a link, over all lanes.
pub(crate) const RAILS_MAX: usize = 16;

/// Rails are judged so often while bytes are pending.
const JUDGED_EVERY: Duration = Duration::from_millis(100);
/// A sample of a rail has [`SAMPLE_BYTES`], or takes so long with bulk on its way.
const SAMPLE_TIME: Duration = Duration::from_millis(50);
/// Weight of the newest sample in the moving average.
const NEWEST: f64 = 0.5;
/// A rail is judged, and others are compared with it, after so many samples.
const SAMPLES_MIN: u32 = 3;
/// Others are compared with a rail whose last sample is no older.
const RECENT: Duration = Duration::from_secs(1);
/// A rail that delivers less than this share of what the best other one does is put aside.
const SLOW_SHARE: f64 = 0.25;
/// A rail that delivers this share of it when it is tried is used again.
const RETURN_SHARE: f64 = 0.5;
/// A rail that delivers nothing for so long, while others deliver what is asked of them, is put aside.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// A thread that judges later than it should by so much was itself stalled. Less than what makes a rail silent.
const STALLED: Duration = Duration::from_millis(400);
/// A rail that was put aside is tried again after so long. Each time that it is put aside again doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A rail that was used for so long begins with the shortest pause again.
const STEADY: Duration = Duration::from_secs(20);
/// A link without a rail that can be used is given up after so long. Longer than a pause, so that the last rail is
/// tried once more at least.
const NONE_UP_MAX: Duration = Duration::from_secs(10);
/// What a rail is taken for that was not measured, in bytes a second.
const UNMEASURED: f64 = 1e9;

/// Why a rail was put aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RailFault {
    /// It broke, or could not be connected.
    Failed,
    /// It delivers a small share of what the others do.
    Slow,
    /// It delivers nothing, while the others deliver what is asked of them, or for longer than the lane allows.
    Silent,
}

impl RailFault {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Slow, Self::Silent];

    /// Returns the name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Slow => "slow",
            Self::Silent => "silent",
        }
    }
}

/// How connecting a rail, or trying it, went.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Trial {
    /// It could not be connected, or delivered nothing.
    Failed,
    /// It works. How fast it is was not measured.
    Works,
    /// It works, and delivers so many bytes a second.
    Measured(f64),
}

impl Trial {
    fn bytes_per_s(self) -> Option<f64> {
        match self {
            Self::Measured(bytes_per_s) => Some(bytes_per_s),
            Self::Failed | Self::Works => None,
        }
    }
}

/// What a lane is to do with the rails of a link now.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RailStep {
    /// End the rail, call [`Rails::put_aside`], and read over others what it did not deliver.
    PutAside { rail: usize, fault: RailFault, reason: String },
    /// Try the rail, and report by [`Rails::tried`].
    Try(usize),
    /// Give up the link: none of its rails could be used for too long.
    GiveUp,
}

/// The rails of a link.
#[derive(Debug)]
pub(crate) struct Rails {
    rails: Vec<Rail>,
    /// How long a rail may deliver nothing, whatever the others do. `None`: the system ends such a rail.
    mute_max: Option<Duration>,
    /// When they are judged next, if bytes are pending.
    judged_at: Instant,
    /// Since when no rail is used.
    none_up: Option<Instant>,
    /// Receives all that is pending and delivered.
    speed: Option<Arc<Mutex<LinkSpeed>>>,
}

#[derive(Debug)]
struct Rail {
    state: State,
    /// Bytes that it is asked for and has not delivered.
    asked: u64,
    /// Of these, what nothing but the rail keeps from coming.
    pending: u64,
    /// By what it delivered lately, or by its trial if it delivered nothing since.
    bandwidth: Bandwidth,
    /// By its last trial alone. Trials of different rails are alike.
    tried_bytes_per_s: Option<f64>,
    sampled_at: Option<Instant>,
    /// What it delivered since the last sample while bulk was pending, and for how long bulk was.
    sample: Sample,
    busy_since: Option<Instant>,
    /// When it last delivered something, or was first asked after it had delivered all.
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
    fn new(trial: Trial, now: Instant) -> Self {
        let measured = trial.bytes_per_s();
        Self {
            state: if trial == Trial::Failed { State::Aside(now + PAUSE_MIN) } else { State::Up(now) },
            asked: 0,
            pending: 0,
            bandwidth: Bandwidth::guessed(measured.unwrap_or(UNMEASURED)),
            tried_bytes_per_s: measured,
            sampled_at: None,
            sample: Sample::default(),
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
            self.sample.time += now.saturating_duration_since(since);
        }
        if self.pending >= BULK_BYTES {
            self.busy_since = Some(now);
        }
    }

    /// Ends its sample, if that is large or long enough.
    fn measure(&mut self, now: Instant) {
        self.pass(now);
        let Sample { bytes, time } = self.sample;
        if time.is_zero() || (bytes < SAMPLE_BYTES && time < SAMPLE_TIME) {
            return;
        }
        self.bandwidth.add(&std::mem::take(&mut self.sample), NEWEST);
        self.sampled_at = Some(now);
    }

    /// Returns what others are compared with, if it was measured lately.
    fn measured_lately(&self, now: Instant) -> Option<f64> {
        let recent = self.sampled_at.is_some_and(|at| now.saturating_duration_since(at) <= RECENT);
        (self.is_up() && self.bandwidth.samples() >= SAMPLES_MIN && recent).then(|| self.bandwidth.bytes_per_s())
    }

    /// Returns what it is certain to deliver: the less of its trial, when it was alone, and of what it delivers now,
    /// when both ends have other things to do.
    fn certain(&self, now: Instant) -> Option<f64> {
        let tried = self.tried_bytes_per_s.filter(|_| self.is_up());
        match (tried, self.measured_lately(now)) {
            (Some(tried), Some(lately)) => Some(tried.min(lately)),
            (tried, lately) => tried.or(lately),
        }
    }
}

impl Rails {
    /// Begins with the rails of a link that was just made. `trials`: how connecting each one went.
    pub(crate) fn new(trials: &[Trial], now: Instant) -> Self {
        let rails: Vec<Rail> = trials.iter().map(|&trial| Rail::new(trial, now)).collect();
        let none_up = (!rails.iter().any(Rail::is_up)).then_some(now);
        Self { rails, mute_max: None, judged_at: now + JUDGED_EVERY, none_up, speed: None }
    }

    /// Begins with the rails of a link that was just made, of which those that are `there` are being tried.
    pub(crate) fn untried(there: &[bool], now: Instant) -> Self {
        let mut new = Self::new(&vec![Trial::Failed; there.len()], now);
        new.rails.iter_mut().zip(there).filter(|(_, there)| **there).for_each(|(rail, _)| rail.state = State::Tried);
        new
    }

    /// The same, where a rail may deliver nothing for so long, whatever the others do.
    pub(crate) fn mute_for(self, at_most: Duration) -> Self {
        Self { mute_max: Some(at_most), ..self }
    }

    /// Reports to `speed` from now on what is pending over all rails, and what is delivered.
    pub(crate) fn report_to(&mut self, speed: Arc<Mutex<LinkSpeed>>) {
        self.speed = Some(speed);
    }

    fn report(&self, report: impl FnOnce(&mut LinkSpeed, u64)) {
        if let Some(speed) = &self.speed {
            let pending = self.rails.iter().map(|rail| rail.pending).sum();
            report(&mut speed.lock().unwrap_or_else(PoisonError::into_inner), pending);
        }
    }

    /// Counts the rails that are used.
    pub(crate) fn up(&self) -> usize {
        self.rails.iter().filter(|rail| rail.is_up()).count()
    }

    /// Returns whether a rail is used.
    pub(crate) fn is_up(&self, rail: usize) -> bool {
        self.rails[rail].is_up()
    }

    // -- bytes

    /// Picks the rail, of those that are used and have room, by which `bytes` more are there first.
    pub(crate) fn pick(&self, bytes: u64, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let seconds = |rail: &Rail| (rail.asked + bytes) as f64 / rail.bandwidth.bytes_per_s().max(1.0);
        let open = self.rails.iter().enumerate().filter(|&(place, rail)| rail.is_up() && has_room(place));
        open.min_by(|(_, one), (_, other)| seconds(one).total_cmp(&seconds(other))).map(|(place, _)| place)
    }

    /// Notes that a rail is asked for bytes. `pending`: nothing else keeps them from coming.
    pub(crate) fn ask(&mut self, rail: usize, bytes: u64, pending: bool, now: Instant) {
        self.rails[rail].asked += bytes;
        if pending {
            self.add_pending(rail, bytes, now);
            self.report(|speed, pending| speed.asked(pending, now));
        }
    }

    /// Notes that nothing else keeps bytes from coming any more that a rail was asked for before.
    pub(crate) fn pending(&mut self, rail: usize, bytes: u64, now: Instant) {
        self.add_pending(rail, bytes, now);
        self.report(|speed, pending| speed.pending(pending, now));
    }

    fn add_pending(&mut self, rail: usize, bytes: u64, now: Instant) {
        if self.rails.iter().all(|rail| rail.pending == 0) {
            self.judged_at = now + JUDGED_EVERY;
        }
        let rail = &mut self.rails[rail];
        if rail.pending == 0 {
            rail.heard = now;
        }
        rail.pending += bytes;
        rail.pass(now);
    }

    /// Notes that a rail delivered bytes that were pending.
    pub(crate) fn delivered(&mut self, rail: usize, bytes: u64, now: Instant) {
        let rail = &mut self.rails[rail];
        if rail.busy_since.is_some() {
            rail.sample.bytes += bytes;
        }
        rail.asked = rail.asked.saturating_sub(bytes);
        rail.pending = rail.pending.saturating_sub(bytes);
        rail.heard = now;
        rail.pass(now);
        self.report(|speed, pending| {
            speed.delivered(bytes, now);
            speed.pending(pending, now);
        });
    }

    /// Notes that bytes are not wanted any more that a rail was asked for.
    pub(crate) fn take_back(&mut self, rail: usize, bytes: u64, pending: bool, now: Instant) {
        let rail = &mut self.rails[rail];
        rail.asked = rail.asked.saturating_sub(bytes);
        rail.pending = rail.pending.saturating_sub(if pending { bytes } else { 0 });
        rail.pass(now);
        self.report(|speed, pending| speed.pending(pending, now));
    }

    // -- recovery

    /// Returns what to do next, until there is nothing to do. `can_be_tried`: of a rail that is put aside, whether all
    /// that belonged to it has ended.
    pub(crate) fn next_step(&mut self, now: Instant, can_be_tried: impl Fn(usize) -> bool) -> Option<RailStep> {
        if let Some((rail, fault)) = self.judge(now) {
            let reason = format!("it reads {:.3} GB/s", self.rails[rail].bandwidth.bytes_per_s() / 1e9);
            return Some(RailStep::PutAside { rail, fault, reason });
        }
        if let (Some(mute_max), Some((rail, heard))) = (self.mute_max, self.mute())
            && now >= heard + mute_max
        {
            let reason = format!("nothing came for {mute_max:?}, and no error says why");
            return Some(RailStep::PutAside { rail, fault: RailFault::Silent, reason });
        }
        let trial = self.next_trial(now, can_be_tried).map(RailStep::Try);
        trial.or_else(|| self.is_lost(now).then_some(RailStep::GiveUp))
    }

    /// Returns when [`Rails::next_step`] has something to do, if nothing happens before.
    pub(crate) fn deadline(&self, can_be_tried: impl Fn(usize) -> bool) -> Option<Instant> {
        let trials = self.rails.iter().enumerate().filter_map(|(place, rail)| match rail.state {
            State::Aside(until) if can_be_tried(place) => Some(until),
            State::Aside(_) | State::Up(_) | State::Tried => None,
        });
        let judged = (self.up() >= 2 && self.rails.iter().any(|rail| rail.pending > 0)).then_some(self.judged_at);
        let mute = self.mute_max.and_then(|mute_max| self.mute().map(|(_, heard)| heard + mute_max));
        trials.chain(judged).chain(mute).chain(self.none_up.map(|since| since + NONE_UP_MAX)).min()
    }

    /// Compares the rails with each other, if it is time to, and returns one that is to be put aside. If this thread
    /// was itself stalled, it compares none: that nothing was heard meanwhile says nothing about rails.
    fn judge(&mut self, now: Instant) -> Option<(usize, RailFault)> {
        if now < self.judged_at || self.up() < 2 {
            return None;
        }
        let late = now - self.judged_at;
        if late >= STALLED {
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

    /// Compares one rail with the others.
    fn fault(&self, place: usize, now: Instant) -> Option<RailFault> {
        let rail = &self.rails[place];
        let others = || self.rails.iter().enumerate().filter(|&(other, rail)| other != place && rail.is_up());
        if !rail.is_up() {
            return None;
        }
        let silent = rail.pending > 0
            && now.saturating_duration_since(rail.heard) >= SILENT_MAX
            && others().any(|(_, other)| other.heard > rail.heard + SILENT_MAX / 2);
        if silent {
            return Some(RailFault::Silent);
        }
        let best = others().filter_map(|(_, other)| other.measured_lately(now)).fold(0.0, f64::max);
        let slow = rail.bandwidth.samples() >= SAMPLES_MIN && rail.bandwidth.bytes_per_s() < SLOW_SHARE * best;
        slow.then_some(RailFault::Slow)
    }

    /// Returns the rail that has delivered nothing of what is pending for the longest, and since when.
    fn mute(&self) -> Option<(usize, Instant)> {
        let pending = self.rails.iter().enumerate().filter(|(_, rail)| rail.is_up() && rail.pending > 0);
        pending.map(|(place, rail)| (place, rail.heard)).min_by_key(|&(_, heard)| heard)
    }

    /// Stops using a rail until a trial of it goes well; nothing is asked of it.
    pub(crate) fn put_aside(&mut self, rail: usize, now: Instant) {
        let rail = &mut self.rails[rail];
        if let State::Up(since) = rail.state
            && now.saturating_duration_since(since) >= STEADY
        {
            rail.pause = PAUSE_MIN;
        }
        rail.state = State::Aside(now + rail.pause);
        rail.pause = (rail.pause * 2).min(PAUSE_MAX);
        (rail.asked, rail.pending, rail.sample, rail.busy_since) = (0, 0, Sample::default(), None);
        rail.bandwidth.forget_samples();
        rail.sampled_at = None;
        self.report(|speed, pending| speed.pending(pending, now));
        if self.up() == 0 {
            self.none_up.get_or_insert(now);
        }
    }

    /// Returns a rail that is to be tried now, which it is from then on.
    fn next_trial(&mut self, now: Instant, can_be_tried: impl Fn(usize) -> bool) -> Option<usize> {
        let is_over = |rail: &Rail| matches!(rail.state, State::Aside(until) if until <= now);
        let place = (0..self.rails.len()).find(|&place| is_over(&self.rails[place]) && can_be_tried(place))?;
        self.rails[place].state = State::Tried;
        Some(place)
    }

    /// Decides whether a rail that was tried is used again. If not, it is put aside again.
    pub(crate) fn tried(&mut self, rail: usize, trial: Trial, now: Instant) -> bool {
        let best = self.rails.iter().filter_map(|rail| rail.certain(now)).fold(0.0, f64::max);
        let is_slow = trial.bytes_per_s().is_some_and(|bytes_per_s| bytes_per_s < RETURN_SHARE * best);
        if trial == Trial::Failed || is_slow {
            self.put_aside(rail, now);
            return false;
        }
        let pause = self.rails[rail].pause;
        self.rails[rail] = Rail { pause, ..Rail::new(trial, now) };
        self.none_up = None;
        true
    }

    /// Returns whether no rail could be used for too long.
    fn is_lost(&self, now: Instant) -> bool {
        self.none_up.is_some_and(|since| now.saturating_duration_since(since) >= NONE_UP_MAX)
    }
}

#[cfg(test)]
mod tests;
