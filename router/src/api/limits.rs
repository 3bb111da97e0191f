//! The limits that a request is parsed against.

use crate::config::RouterLimits;
use crate::sessions::Service;

/// The limits that parsing knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Tokens of a prompt and its completion together.
    pub(crate) context_tokens: u32,
    /// The tokens of prompt and completion that every worker has room for. A completion without a bound of its own
    /// ends there, if its prompt leaves room.
    pub(crate) common_context: u32,
    /// Tokens of a prompt.
    pub(crate) prompt_tokens_max: u32,
    /// Prompts of a request.
    pub(crate) prompts_max: usize,
    /// Sequences of a prompt.
    pub(crate) choices_max: u16,
    /// All workers know grammars.
    pub(crate) grammars: bool,
}

impl Limits {
    /// Returns those of the router and of what its workers serve.
    pub(crate) fn of(asked: &RouterLimits, service: &Service) -> Self {
        Self {
            context_tokens: service.served.context_tokens,
            common_context: service.common_context,
            prompt_tokens_max: asked.prompt_tokens_max,
            prompts_max: asked.prompts_max,
            choices_max: asked.choices_max,
            grammars: service.served.grammars,
        }
    }
}
