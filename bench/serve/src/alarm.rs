//! Waking up on time. The runtime's timer counts whole milliseconds and is up to two of them late, which a
//! generator would report as the server's; the kernel's timers are good for some tens of microseconds.

use rustix::fd::OwnedFd;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// What the runtime's timer leaves to the kernel's.
const COARSE: Duration = Duration::from_millis(3);

/// Returns at `moment` or as soon after it as the machine can.
pub(crate) async fn at(moment: Instant) {
    let left = moment.saturating_duration_since(Instant::now());
    if left > COARSE {
        sleep_until(moment - COARSE).await;
    }
    // Without a timer of the kernel (no file descriptor is left) late is better than never.
    if exact(moment).await.is_err() {
        sleep_until(moment).await;
    }
}

async fn exact(moment: Instant) -> io::Result<()> {
    let left = moment.saturating_duration_since(Instant::now());
    // A timer that is set to nothing never rings.
    if left.is_zero() {
        return Ok(());
    }
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer: OwnedFd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    // SAFETY: the descriptor is owned, here alone, and stays open and the same until the registration is dropped
    // with it.
    let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? };
    // It was never read: readable means that it rang.
    let _ = timer.readable().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_never_rings_early() {
        for us in [0, 1, 300, 2_900, 3_100, 8_000] {
            let moment = Instant::now() + Duration::from_micros(us);
            at(moment).await;
            assert!(Instant::now() >= moment, "{us}");
        }
    }
}
