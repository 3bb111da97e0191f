//! Grammars of attempts. A grammar is compiled on a thread of its own, since that takes longer than a step may wait;
//! meanwhile the submit that needs it is kept here, and nothing of it has begun.

use crate::config::GRAMMARS_WAITING_MAX;
use crate::sessions::SessionId;
use domain::session::Submit;
use domain::{Choice, Epoch, Grammar, RequestId};
use engine::grammar::{CompiledGrammar, GrammarError, Grammars};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Compiles grammars, one after the other, and tells the worker.
#[derive(Debug)]
pub struct Compiler {
    grammars: Arc<Grammars>,
    orders: SyncSender<Order>,
}

/// A grammar that an attempt waits for.
#[derive(Debug)]
struct Order {
    request: RequestId,
    epoch: Epoch,
    grammar: Grammar,
}

/// What came of a grammar that an attempt waits for.
#[derive(Debug)]
pub struct CompiledFor {
    /// The request.
    pub request: RequestId,
    /// The attempt.
    pub epoch: Epoch,
    /// The grammar, or why it is none.
    pub compiled: Result<Arc<CompiledGrammar>, GrammarError>,
}

/// What has to happen with a submit.
pub(crate) enum Readiness {
    /// It begins now, with its grammar if it has one.
    Ready(Submit, Option<Arc<CompiledGrammar>>),
    /// It waits for its grammar.
    Waits,
    /// More submits wait than may.
    TooMany(Submit),
}

/// Submits whose grammars are being compiled.
#[derive(Default)]
pub(crate) struct GrammarDesk {
    /// `None`: the worker knows no grammars.
    compiler: Option<Compiler>,
    waiting: Vec<(SessionId, Submit)>,
}

impl Compiler {
    /// Starts the thread, which gives `tell` what comes of each grammar. It ends when this is dropped. Errors: the
    /// operating system starts no thread.
    pub fn start(
        worker: &str,
        grammars: Arc<Grammars>,
        tell: impl Fn(CompiledFor) + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, taken) = sync_channel::<Order>(GRAMMARS_WAITING_MAX);
        let compiles = grammars.clone();
        threads::spawn(format!("{worker}-grammars"), move || {
            compiles.prepare();
            for Order { request, epoch, grammar } in taken {
                tell(CompiledFor { request, epoch, compiled: compiles.compile(&grammar) });
            }
        })?;
        Ok(Self { grammars, orders })
    }
}

impl GrammarDesk {
    /// Lets the worker take submits with grammars.
    pub(crate) fn open(&mut self, compiler: Compiler) {
        self.compiler = Some(compiler);
    }

    /// Returns whether the worker takes submits with grammars.
    pub(crate) fn is_open(&self) -> bool {
        self.compiler.is_some()
    }

    /// Takes a submit: it is ready at once if it has no grammar, or one that was compiled before.
    pub(crate) fn take(&mut self, session: SessionId, submit: Submit) -> Readiness {
        let Some(grammar) = &submit.params.grammar else { return Readiness::Ready(submit, None) };
        let Some(compiler) = &self.compiler else { return Readiness::Ready(submit, None) };
        if let Some(kept) = compiler.grammars.kept(grammar) {
            return Readiness::Ready(submit, Some(kept));
        }
        let order = Order { request: submit.request, epoch: submit.epoch, grammar: grammar.clone() };
        if self.waiting.len() >= GRAMMARS_WAITING_MAX || compiler.orders.try_send(order).is_err() {
            return Readiness::TooMany(submit);
        }
        self.waiting.push((session, submit));
        Readiness::Waits
    }

    /// Returns whether the submit of an attempt waits.
    pub(crate) fn has(&self, request: RequestId, epoch: Epoch) -> bool {
        self.waiting.iter().any(|(_, submit)| (submit.request, submit.epoch) == (request, epoch))
    }

    /// Takes out the submit of an attempt, if it waits.
    pub(crate) fn remove(&mut self, request: RequestId, epoch: Epoch) -> Option<(SessionId, Submit)> {
        let at = self.waiting.iter().position(|(_, submit)| (submit.request, submit.epoch) == (request, epoch))?;
        Some(self.waiting.swap_remove(at))
    }

    /// Takes one choice off a submit that waits, and the submit if it has no other.
    pub(crate) fn remove_choice(&mut self, request: RequestId, epoch: Epoch, choice: Choice) {
        for (_, submit) in &mut self.waiting {
            if (submit.request, submit.epoch) == (request, epoch) {
                submit.choices.retain(|(of, _)| *of != choice);
            }
        }
        self.waiting.retain(|(_, submit)| !submit.choices.is_empty());
    }

    /// Drops the submits of sessions that are over.
    pub(crate) fn retain(&mut self, is_open: impl Fn(SessionId) -> bool) {
        self.waiting.retain(|(session, _)| is_open(*session));
    }

    /// Takes out all submits.
    pub(crate) fn drain(&mut self) -> Vec<(SessionId, Submit)> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns how many submits wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
