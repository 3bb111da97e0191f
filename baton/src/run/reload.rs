//! A configuration that is read again on SIGHUP: from the same file, environment and flags as at the start.
//!
//! It changes as a whole or not at all. Where a setting differs that only a start can take up, or where the
//! configuration is wrong, everything stays as it is, and the log says why.

use crate::config::{CHANGEABLE, Config, ConfigError, Difference, Flags, Loaded, load};
use crate::error::with_causes;
use crate::output::stderr_is_terminal;
use router::RequestLimits;
use rustix::process::{Signal, getpid, kill_process};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The configuration that a process runs with.
pub(crate) struct Running {
    flags: Flags,
    loaded: Loaded,
    limits: watch::Sender<RequestLimits>,
}

/// Why a configuration is not changed.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    /// It is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Some of it cannot change.
    #[error("these settings cannot change without a restart: {}", list(.0))]
    Fixed(Vec<Difference>),
    /// The new filter is none, or there is no log.
    #[error(transparent)]
    Log(#[from] telemetry::logging::LogError),
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join(", ")
}

impl Running {
    /// Takes what was loaded by these flags, and is good.
    pub(crate) fn new(flags: Flags, loaded: Loaded) -> Self {
        let limits = request_limits(loaded.config());
        Self { flags, loaded, limits: watch::Sender::new(limits) }
    }

    /// Returns the settings as they are now.
    pub(crate) fn config(&self) -> &Config {
        self.loaded.config()
    }

    /// Returns the limits of requests, as they change.
    pub(super) fn limits(&self) -> watch::Receiver<RequestLimits> {
        self.limits.subscribe()
    }

    /// Reads the configuration again at every SIGHUP, until dropped. One that comes because the terminal was closed
    /// ends the process as SIGTERM does.
    pub(super) async fn follow(mut self) -> Infallible {
        let Ok(mut hangups) = signal(SignalKind::hangup()) else {
            tracing::error!("SIGHUP cannot be caught: the configuration stays as it is");
            return pending().await;
        };
        let had_terminal = stderr_is_terminal();
        loop {
            // There are signals for as long as the process lives.
            hangups.recv().await;
            if had_terminal && !stderr_is_terminal() {
                tracing::info!("the terminal is closed: what is open may end");
                // A process can send itself a signal.
                let _ = kill_process(getpid(), Signal::TERM);
                return pending().await;
            }
            match load(&self.flags).map_err(ReloadError::from).and_then(|loaded| self.take(loaded)) {
                Ok(changed) if changed.is_empty() => {
                    tracing::info!("the configuration was read again: nothing changed")
                }
                Ok(changed) => {
                    for Difference { key, from, to } in changed {
                        tracing::info!(key, from, to, "a setting changed");
                    }
                }
                Err(error) => {
                    let why = with_causes(&error);
                    tracing::error!(why, "the configuration was read again and stays as it is");
                }
            }
        }
    }

    /// Takes another configuration up, and returns what is new. Errors: nothing changes.
    fn take(&mut self, loaded: Loaded) -> Result<Vec<Difference>, ReloadError> {
        loaded.check()?;
        let config = loaded.config();
        let changed = self.loaded.differences(&loaded);
        let fixed: Vec<_> = changed.iter().filter(|changed| !CHANGEABLE.contains(&changed.key)).cloned().collect();
        if !fixed.is_empty() {
            return Err(ReloadError::Fixed(fixed));
        }
        // An operator's filter stays until the setting changes.
        if config.log.level != self.config().log.level {
            telemetry::logging::set_filter(&config.log.level)?;
        }
        self.limits.send_replace(request_limits(config));
        self.loaded = loaded;
        Ok(changed)
    }
}

fn request_limits(config: &Config) -> RequestLimits {
    let router = &config.router;
    RequestLimits {
        prompt_tokens_max: if router.prompt_tokens_max == 0 { u32::MAX } else { router.prompt_tokens_max },
        // A request with more would never be taken.
        prompts_max: router.prompts_max.min(router.requests_max),
        choices_max: router.choices_max,
        deadline: Duration::from_secs(router.deadline_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[&str]) -> Flags {
        Flags { set: settings.iter().map(|&setting| setting.to_owned()).collect(), ..Flags::default() }
    }

    fn loaded(settings: &[&str]) -> Loaded {
        load(&set(settings)).expect("it can be read")
    }

    const OTHER: [&str; 4] =
        ["router.prompt_tokens_max=7", "router.prompts_max=2", "router.choices_max=3", "router.deadline_s=5"];

    #[test]
    fn what_can_change_changes() {
        let mut running = Running::new(set(&[]), loaded(&[]));
        let limits = running.limits();
        let changed = running.take(loaded(&OTHER)).expect("it is taken");
        assert_eq!(list(&changed[..2]), "router.prompt_tokens_max (0 -> 7), router.prompts_max (64 -> 2)");
        // All but the log, which the process of this test does not keep.
        let keys: Vec<_> = changed.iter().map(|changed| changed.key).chain(["log.level"]).collect();
        assert_eq!(keys, CHANGEABLE);
        let deadline = Duration::from_secs(5);
        let wanted = RequestLimits { prompt_tokens_max: 7, prompts_max: 2, choices_max: 3, deadline };
        assert_eq!(*limits.borrow(), wanted);
        assert_eq!(running.take(loaded(&OTHER)).expect("it is taken"), []);
    }

    #[test]
    fn a_change_is_refused_as_a_whole() {
        let mut running = Running::new(set(&[]), loaded(&[]));
        let before = *running.limits().borrow();
        let fixed = running.take(loaded(&[&OTHER[..], &["engine.threads=3", "kv.reserve_percent=9"]].concat()));
        let text = fixed.expect_err("it cannot change").to_string();
        assert!(text.ends_with("a restart: engine.threads (0 -> 3), kv.reserve_percent (5 -> 9)"), "{text}");
        let wrong = running.take(loaded(&[&OTHER[..], &["router.connections_max=1"]].concat()));
        assert!(wrong.expect_err("it is wrong").to_string().contains("router.connections_max"));
        let filter = running.take(loaded(&[&OTHER[..], &["log.level=loud"]].concat()));
        assert!(filter.expect_err("it is no level").to_string().contains("loud"));
        assert_eq!((*running.limits().borrow(), running.config().log.level.as_str()), (before, "info"));
    }
}
