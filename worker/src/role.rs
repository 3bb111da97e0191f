//! What makes a prefill worker differ from a decode worker: which submits it takes.

use domain::Token;
use domain::session::{Failure, Submit};
use engine::grammar::GrammarError;

/// The policy of a kind of worker for submits.
///
/// A role decides once per attempt, when the attempt is submitted. How an attempt begins and what happens to it
/// afterwards follows from its [`Assignment`](domain::session::Assignment) alone, and is the same in every worker.
pub trait Role: Send + 'static {
    /// Judges a submit that this worker could compute. Errors: this kind of worker does not take it.
    fn judge(&self, submit: &Submit) -> Result<(), Refusal>;
}

/// Makes the role of a kind of worker.
pub type MakeRole = fn(domain::session::Role) -> Box<dyn Role>;

/// Why a worker does not begin an attempt. The message is the detail that the router receives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The worker is about to end.
    #[error("the worker takes nothing new")]
    Draining,
    /// An operator drains the worker.
    #[error("an operator drains the worker")]
    Paused,
    /// The role of the worker does not include the assignment.
    #[error("{0}")]
    OtherRole(&'static str),
    /// The choices of a prompt that is to be handed off continue different tokens.
    #[error("choices that differ already cannot share a handoff")]
    ChoicesDiffer,
    /// The choices could never run at once.
    #[error("{choices} choices are more than the {running_max} sequences that this worker runs at once")]
    TooManyChoices {
        /// Choices of the attempt.
        choices: usize,
        /// Sequences that run here at once.
        running_max: u32,
    },
    /// The sequence could become longer than the model and the pools allow.
    #[error("{prompt} tokens and {made} to be made are more than this worker's context of {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that may follow it here.
        made: usize,
        /// The longest sequence.
        context: usize,
    },
    /// The device does not compute with the adapter (any more): a report that says so is on its way.
    #[error("the worker does not have the adapter that the request is to be computed with")]
    NoAdapter,
    /// The worker samples by no grammar: its device says tokens of no text.
    #[error("the worker cannot keep an output to a grammar")]
    GrammarsUnknown,
    /// The grammar of the request is none, or costs too much.
    #[error("the grammar is refused: {0}")]
    NoGrammar(GrammarError),
    /// Too many submits wait for their grammars to be compiled.
    #[error("too many grammars wait to be compiled")]
    TooManyGrammars,
    /// A token is not in the vocabulary: the router takes the model for another one.
    #[error("the token {token} is not one of the model, whose tokens are below {vocab}")]
    ForeignToken {
        /// The token.
        token: Token,
        /// Number of tokens in the vocabulary.
        vocab: usize,
    },
}

impl Refusal {
    /// Returns what the router is told.
    pub fn failure(&self) -> Failure {
        match self {
            Refusal::Draining => Failure::Draining,
            // The router learns it with the next report. It costs the request no attempt.
            Refusal::Paused | Refusal::OtherRole(_) | Refusal::NoAdapter | Refusal::TooManyGrammars => {
                Failure::QueueFull
            }
            Refusal::ChoicesDiffer => Failure::Engine,
            Refusal::TooManyChoices { .. } | Refusal::TooLong { .. } => Failure::TooLarge,
            Refusal::ForeignToken { .. } | Refusal::GrammarsUnknown | Refusal::NoGrammar(_) => Failure::Invalid,
        }
    }
}
