//! What operators do with prefixes: pin one, such as a system prompt, to the device, unpin it, park a conversation, or
//! bring it back ahead of its next turn.
//!
//! Deliberately absent: text. A router makes tokens of it.

use super::Machine;
use crate::loading::Unparking;
use domain::{BlockHash, Time};
use kv_manager::Pinned;
use proto::admin::prefix_ask::Body as Ask;
use proto::admin::worker_answer::Body as Answer;
use proto::admin::{PIN_MAX, PrefixAsk, PrefixOutcome, WorkerAnswer, WorkerPrefix};
use std::time::Duration;

/// What became of an ask.
struct Done {
    outcome: PrefixOutcome,
    /// Why nothing was done.
    why: String,
    /// Blocks that leave the device or come to it.
    blocks: u32,
}

impl Machine {
    /// Does what an operator asks of a prefix, and says what the worker has of it then.
    pub(super) fn answer_prefix(&mut self, now: Time, ask: &PrefixAsk) -> WorkerAnswer {
        let core = &self.core;
        let (size, scope) = (core.config.layout.block_tokens, core.config.scope(&ask.tenant, None));
        let mut chain = Vec::new();
        scope.extend_chain(&mut chain, &ask.tokens, size);
        let (tokens, context) = (ask.tokens.len(), self.device.limits().context_max);
        let done = match ask.body {
            _ if tokens > context => {
                refused(format!("the prefix has more tokens ({tokens}) than the worker's context ({context})"))
            }
            _ if chain.is_empty() => refused(format!("the prefix has fewer tokens ({tokens}) than a block ({size})")),
            Some(Ask::Pin(ms)) => self.pin(now, &chain, Duration::from_millis(ms)),
            Some(Ask::Unpin(_)) if self.core.kv.unpin(&chain) => self.logged("unpins", &chain, done(0)),
            Some(Ask::Unpin(_)) => unchanged("it is not pinned, exactly as it is"),
            Some(Ask::Park(_)) => self.park(&chain),
            Some(Ask::Unpark(_)) => {
                let unparking = self.core.loader().load_for_operator(now, scope.tenant(), &chain);
                self.unpark(&chain, unparking)
            }
            None => refused("this worker does not know what is asked: it is of an older version".to_owned()),
        };
        let core = &self.core;
        WorkerAnswer {
            body: Some(Answer::Prefix(WorkerPrefix {
                worker: core.config.id.0,
                worker_name: core.config.name.clone(),
                outcome: done.outcome.into(),
                why: done.why,
                tokens: chain.len() as u32 * size,
                device_tokens: core.kv.cached_tokens(&chain),
                blocks: done.blocks,
                pinned: core.kv.is_pinned(&chain),
            })),
        }
    }

    /// Keeps the prefix on the device from when it is there. It is not computed for this.
    fn pin(&mut self, now: Time, chain: &[BlockHash], duration: Duration) -> Done {
        if duration > PIN_MAX {
            return refused(format!("a pin lasts {} days at most", PIN_MAX.as_secs() / (24 * 3600)));
        }
        let percent = self.core.config.pinned_percent;
        match self.core.kv.pin(chain, now + duration) {
            Pinned::Until { .. } => self.logged("pins", chain, done(0)),
            Pinned::TooMany if percent == 0 => {
                refused("kv.pinned_percent is 0, so that this worker pins nothing".to_owned())
            }
            Pinned::TooMany => refused(format!(
                "pins would name more than {percent}% of its blocks (kv.pinned_percent): unpin another prefix"
            )),
        }
    }

    /// Moves what nothing uses of the prefix off the device.
    fn park(&mut self, chain: &[BlockHash]) -> Done {
        if !self.core.kv.can_park() {
            return refused("it has no tier on its host to park in (host.bytes, disk.path), or that is off".to_owned());
        }
        let blocks = self.core.kv.park(chain);
        self.core.loader().write_to_tiers();
        match blocks {
            0 if self.core.kv.cached_tokens(chain) == 0 => unchanged("nothing of it is on the device"),
            0 => unchanged("what is on the device is in use, pinned, or waits behind other writes"),
            blocks => self.logged("parks", chain, done(blocks)),
        }
    }

    fn unpark(&self, chain: &[BlockHash], unparking: Unparking) -> Done {
        match unparking {
            Unparking::Begun { blocks } => self.logged("unparks", chain, done(blocks)),
            Unparking::Nothing => unchanged("no tier has more of it than the device"),
            Unparking::NoRoom => refused("the device has no room for it: what is there is in use or pinned".to_owned()),
            Unparking::Busy => refused("it loads as much as it may at once: try again".to_owned()),
        }
    }

    /// Tells the log what an operator did, without the tokens.
    fn logged(&self, does: &str, chain: &[BlockHash], done: Done) -> Done {
        let config = &self.core.config;
        let (worker, tokens) = (&config.name, chain.len() as u32 * config.layout.block_tokens);
        tracing::info!(worker, tokens, blocks = done.blocks, "an operator {does} a prefix");
        done
    }
}

fn done(blocks: u32) -> Done {
    Done { outcome: PrefixOutcome::Done, why: String::new(), blocks }
}

fn unchanged(why: &str) -> Done {
    Done { outcome: PrefixOutcome::Unchanged, why: why.to_owned(), blocks: 0 }
}

fn refused(why: String) -> Done {
    Done { outcome: PrefixOutcome::Refused, why, blocks: 0 }
}
