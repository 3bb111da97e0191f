//! How fast a lane to a peer is lately, and when it has become too slow: decisions over what others measured. Time
//! is an argument.

use crate::lanes::Probe;
use crate::speed::bandwidth::{BULK_BYTES, Bandwidth, SAMPLE_BYTES, Sample};
use crate::speed::fair_share::FairShare;
use crate::speed::ranking::seconds;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sample has [`SAMPLE_BYTES`] and takes so long, at least.
const SAMPLE_TIME: Duration = Duration::from_millis(10);
/// Weight of the newest measurement in the moving averages.
const NEWEST: f64 = 1.0 / 16.0;
/// What the lane did in so many measurements is what it is expected to do from then on.
const CALIBRATING: u32 = 64;
/// A lane is too slow under this share of what it is expected to do, and is no longer above the other.
const FLOOR: f64 = 0.25;
const RECOVERED: f64 = 0.5;
/// A lane is held against what it was promised to bring from this measurement on: the first ones say more of how
/// it began.
const JUDGED: u32 = 16;
/// A measurement counts as no more than this share: what was in a buffer already is there at once, and would hide
/// a fall.
const SHARE_MAX: f64 = 2.0;

/// How fast a lane to a peer is lately, compared with how fast it was when it was first read over. What counts is
/// what the link as a whole delivered in the time in which bytes were pending, however many transfers took turns; and
/// what it would have delivered if the other links of the lane had not read at the same time. A lane has become slow
/// if both have fallen: the first also falls where many peers are read at once, the second also where one is read
/// alone that never needed the whole lane.
#[derive(Debug, Default)]
pub(crate) struct LinkSpeed {
    /// As measured when the peer was connected.
    probe: Probe,
    fair_share: Arc<FairShare>,
    /// Bytes that nothing but the link keeps from coming.
    pending: u64,
    /// Threads of this process that copy.
    copying: u32,
    /// The link has ended: what is reported from now on counts for nothing.
    is_over: bool,
    /// While bytes are pending: up to when that is accounted for.
    since: Option<Since>,
    /// By all the time in which bytes were pending.
    whole: Estimate,
    /// By what of that time fell to this link.
    fair: Estimate,
    is_slow: bool,
    untold: Option<Slow>,
    /// Bytes a second that its ports, or the configuration, promise. `None`: nothing is promised.
    promised: Option<f64>,
    is_short: bool,
    short_untold: Option<Slow>,
}

/// How fast a link is, by one way of counting its time.
#[derive(Debug, Default)]
struct Estimate {
    /// Since the last measurement.
    sample: Sample,
    lately: Bandwidth,
    /// All that was measured while the lane was calibrated.
    calibration: Sample,
    /// What it does lately, as a share of what it did while it was calibrated.
    share: f64,
}

impl Estimate {
    /// Ends the sample. Returns whether it was one of those that calibrate.
    fn measure(&mut self) -> bool {
        let sample = std::mem::take(&mut self.sample);
        let calibrates = self.lately.samples() < CALIBRATING;
        self.lately.add(&sample, NEWEST);
        if calibrates {
            self.calibration.add(sample);
            self.share = 1.0;
        } else {
            let newest = (sample.bytes_per_s() / self.calibration.bytes_per_s()).min(SHARE_MAX);
            self.share += NEWEST * (newest - self.share);
        }
        calibrates
    }
}

/// Up to when something is accounted for.
#[derive(Debug)]
struct Since {
    /// What is pending is not expected before this, if it is later.
    expected: Instant,
    now: Instant,
    /// What of the time had fallen to a link then.
    share: Duration,
}

/// A lane is under a floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slow {
    /// Bytes a second, lately.
    pub(crate) bytes_per_s: f64,
    /// What they were when the reads began, or what was promised.
    pub(crate) expected: f64,
}

impl LinkSpeed {
    /// That of a link which shares its lane with others.
    pub(crate) fn among(fair_share: Arc<FairShare>) -> Self {
        Self { fair_share, ..Self::default() }
    }

    /// Notes that so many bytes are pending from now on.
    pub(crate) fn pending(&mut self, bytes: u64, now: Instant) {
        self.pass(now);
        self.pending = bytes;
        self.turn(now, Duration::ZERO);
    }

    /// Notes that so many bytes are pending from now on, of which some were asked for just now: they cannot be there
    /// before the latency has passed.
    pub(crate) fn asked(&mut self, bytes: u64, now: Instant) {
        self.pass(now);
        self.pending = bytes;
        self.turn(now, Duration::from_secs_f64(self.probe.latency_s));
    }

    /// Notes that a thread of this process copies from now on.
    pub(crate) fn begin_copy(&mut self, now: Instant) {
        self.pass(now);
        self.copying += 1;
        self.turn(now, Duration::ZERO);
    }

    /// Notes that such a thread has copied so many bytes.
    pub(crate) fn end_copy(&mut self, bytes: u64, now: Instant) {
        self.delivered(bytes, now);
        self.copying = self.copying.saturating_sub(1);
        self.turn(now, Duration::ZERO);
    }

    /// Notes that so many bytes have come. To be called before they are no longer pending.
    pub(crate) fn delivered(&mut self, bytes: u64, now: Instant) {
        self.pass(now);
        if self.since.is_some() {
            self.whole.sample.bytes += bytes;
            self.fair.sample.bytes += bytes;
        }
        if self.whole.sample.bytes >= SAMPLE_BYTES && self.whole.sample.time >= SAMPLE_TIME {
            self.measure();
        }
    }

    /// Ends it: the link has no part of the lane any more.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        if self.since.take().is_some() {
            self.fair_share.leave();
        }
    }

    /// Accounts for the time until now.
    fn pass(&mut self, now: Instant) {
        let Some(since) = &mut self.since else { return };
        let share = self.fair_share.share(now);
        let busy = now.saturating_duration_since(since.expected.max(since.now));
        if !busy.is_zero() {
            let part = busy.as_secs_f64() / now.duration_since(since.now).as_secs_f64();
            self.whole.sample.time += busy;
            self.fair.sample.time += share.saturating_sub(since.share).mul_f64(part);
        }
        (since.now, since.share) = (since.now.max(now), share);
    }

    /// Begins to share the lane, or ends, by what is pending now. Time counts after `latency`.
    fn turn(&mut self, now: Instant, latency: Duration) {
        let is_busy = !self.is_over && (self.pending >= BULK_BYTES || self.copying > 0);
        match (is_busy, self.since.is_some()) {
            (true, false) => {
                let share = self.fair_share.enter(now);
                self.since = Some(Since { expected: now + latency, now, share });
            }
            (false, true) => {
                self.since = None;
                self.fair_share.leave();
            }
            _ => {}
        }
    }

    fn measure(&mut self) {
        self.fair.measure();
        let calibrates = self.whole.measure();
        self.compare_with_promise();
        if calibrates {
            return;
        }
        let better = self.whole.share.max(self.fair.share);
        if self.is_slow {
            self.is_slow = better < RECOVERED;
        } else if better < FLOOR {
            self.is_slow = true;
            let expected = self.whole.calibration.bytes_per_s();
            self.untold = Some(Slow { bytes_per_s: self.whole.share * expected, expected });
        }
    }

    /// Compares what it does with what was promised, so that a lane that was never fast is noticed as well.
    fn compare_with_promise(&mut self) {
        let Some(promised) = self.promised.filter(|_| self.whole.lately.samples() > JUDGED) else { return };
        let bytes_per_s = self.whole.lately.bytes_per_s().max(self.fair.lately.bytes_per_s());
        if self.is_short {
            self.is_short = bytes_per_s < RECOVERED * promised;
        } else if bytes_per_s < FLOOR * promised {
            self.is_short = true;
            self.short_untold = Some(Slow { bytes_per_s, expected: promised });
        }
    }

    /// From now on it is expected to bring so many bytes a second.
    pub(crate) fn promise(&mut self, bytes_per_s: Option<f64>) {
        self.promised = bytes_per_s.filter(|promised| *promised > 0.0);
    }

    /// Returns whether it brings far less than was promised and nobody was told. It is said once until it brings enough
    /// again.
    pub(crate) fn take_short(&mut self) -> Option<Slow> {
        self.short_untold.take()
    }

    /// Returns whether it has become slow and nobody was told. It stays slow until it recovers, so this is said once
    /// for each fall.
    pub(crate) fn take_slow(&mut self) -> Option<Slow> {
        self.untold.take()
    }

    /// Returns whether it has become slow and has not recovered.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// What was measured when the peer was connected. What was read for that is no measure of what comes.
    pub(crate) fn probed(&mut self, probe: Probe) {
        self.end();
        *self = Self { probe, promised: self.promised, ..Self::among(self.fair_share.clone()) };
    }

    /// Returns what it costs to read, by the probe and by what reads did since.
    pub(crate) fn lately(&self) -> Probe {
        let lately = &self.whole.lately;
        let bytes_per_s = if lately.samples() > 0 { lately.bytes_per_s() } else { self.probe.bytes_per_s };
        Probe { bytes_per_s, ..self.probe }
    }

    /// Returns how long a read of so many bytes would take. `None`: nothing was measured.
    pub(crate) fn predict(&self, bytes: u64) -> Option<Duration> {
        let lately = self.lately();
        (lately.bytes_per_s > 0.0).then(|| Duration::from_secs_f64(seconds(&lately, bytes as f64)))
    }
}

#[cfg(test)]
mod tests;
