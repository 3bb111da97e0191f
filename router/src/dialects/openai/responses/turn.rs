//! One response: from the fields of its request to what is kept of it.

use super::input::{INPUT, Items};
use super::made::Made;
use super::options;
use super::writer::TurnWriter;
use crate::answer::Writer;
use crate::api::{Fields, Limits, Options, ParsedRequest, model};
use crate::config::ModelCard;
use crate::dialects::openai::TOOLS;
use crate::dialects::{Dialect, Head};
use crate::error::ApiError;
use domain::{RequestId, Token};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// Responses, for what does not depend on one of them.
#[derive(Debug)]
pub(crate) struct Responses;

/// One response.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    id: String,
    /// The conversation that it goes on from, until its request is parsed.
    earlier: Mutex<Vec<Value>>,
    /// There is a store.
    has_store: bool,
    made: Arc<Made>,
}

impl Turn {
    /// Begins the response `id`, which goes on from `earlier` items. `has_store`: it may be kept.
    pub(crate) fn new(id: String, earlier: Vec<Value>, has_store: bool) -> Self {
        Self { id, earlier: Mutex::new(earlier), has_store, made: Arc::default() }
    }

    /// Takes what is to be kept, once it is over: the response, and the items before its output. `None`: nothing is, or
    /// not yet.
    pub(crate) fn take_over(&self) -> Option<(Value, Vec<Value>)> {
        self.made.take_over()
    }
}

impl Dialect for Turn {
    fn path(&self) -> &'static str {
        "/v1/responses"
    }

    fn operation(&self) -> &'static str {
        "chat"
    }

    fn prompt_field(&self) -> &'static str {
        INPUT
    }

    fn answer_id(&self, _id: RequestId) -> String {
        self.id.clone()
    }

    fn keeps(&self) -> bool {
        true
    }

    fn parse(
        &self,
        mut fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        model(&mut fields, card)?;
        let earlier = std::mem::take(&mut *self.earlier.lock().unwrap_or_else(PoisonError::into_inner));
        let items = Items::take(&mut fields, earlier, &self.id)?;
        let taken = options::take(&mut fields, card, self.has_store)?;
        fields.finish()?;
        let prompt = items.prompt(&taken, card, limits)?;
        self.made.asks(taken.told, taken.is_kept.then_some(items.items));
        let mut options = taken.options;
        options.set_grammar(TOOLS, &prompt, card)?;
        Ok((vec![prompt], options))
    }

    fn writer(&self, head: Head, _asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Box::new(TurnWriter::new(head, card, self.made.clone()))
    }

    fn error(&self, error: &ApiError, _request: RequestId) -> Vec<u8> {
        crate::dialects::openai::error(error)
    }
}

/// As a response does that goes on from none and is not kept.
impl Dialect for Responses {
    fn path(&self) -> &'static str {
        Turn::default().path()
    }

    fn operation(&self) -> &'static str {
        Turn::default().operation()
    }

    fn prompt_field(&self) -> &'static str {
        INPUT
    }

    fn answer_id(&self, id: RequestId) -> String {
        format!("resp_{:016x}", id.0)
    }

    fn keeps(&self) -> bool {
        true
    }

    fn parse(
        &self,
        fields: Fields<'_>,
        card: &ModelCard,
        limits: &Limits,
    ) -> Result<(Vec<Vec<Token>>, Options), ApiError> {
        Turn::default().parse(fields, card, limits)
    }

    fn writer(&self, head: Head, asked: &ParsedRequest, card: &ModelCard) -> Box<dyn Writer> {
        Turn::default().writer(head, asked, card)
    }

    fn error(&self, error: &ApiError, request: RequestId) -> Vec<u8> {
        Turn::default().error(error, request)
    }
}
