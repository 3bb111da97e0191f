//! What the handlers of all paths share.

use super::bodies::Bodies;
use super::places::Places;
use crate::api::Limits;
use crate::brain::{Fleet, Note, Phase};
use crate::clock::{Clock, Draw};
use crate::config::{ModelCard, RouterConfig};
use crate::error::ApiError;
use crate::open_requests::OpenRequests;
use crate::responses::Store;
use crate::sessions::Service;
use domain::session::Served;
use placement::RETRY_AFTER_MIN;
use std::sync::Arc;
use telemetry::MetricsHandle;
use tokio::sync::{mpsc, oneshot, watch};

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: RouterConfig,
    pub(crate) card: ModelCard,
    pub(crate) clock: Clock,
    pub(crate) draw: Draw,
    /// Those of open prompts.
    pub(crate) places: Arc<Places>,
    /// The bodies that are being read or parsed.
    pub(crate) bodies: Arc<Bodies>,
    /// The responses that are kept, if any are.
    pub(crate) responses: Option<Store>,
    /// The requests that clients wait for.
    pub(crate) open_requests: OpenRequests,
    pub(crate) notes: mpsc::Sender<Note>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) fleet: watch::Receiver<Fleet>,
    /// What the workers serve, once one has said it.
    pub(crate) service: watch::Receiver<Option<Service>>,
    pub(crate) metrics: MetricsHandle,
}

impl App {
    /// Checks that requests are still taken. Errors: the service is shutting down.
    pub(super) fn open(&self) -> Result<(), ApiError> {
        match *self.phase.borrow() {
            Phase::Serving => Ok(()),
            Phase::Draining | Phase::Ending | Phase::Over => {
                Err(ApiError::unavailable("shutting_down", "The service is shutting down."))
            }
        }
    }

    /// Returns what the workers serve. Errors: none was up yet.
    pub(crate) fn service(&self) -> Result<Service, ApiError> {
        let none = || ApiError::unavailable("no_workers", "No worker is there: none was up yet.");
        self.service.borrow().ok_or_else(none)
    }

    /// Returns the limits of requests. Errors: no worker was up yet.
    pub(crate) fn limits(&self) -> Result<Limits, ApiError> {
        Ok(Limits::of(&self.config.limits.borrow(), &self.service()?))
    }

    /// Returns what the workers serve; `None`: none was up yet.
    pub(super) fn served(&self) -> Option<Served> {
        self.service.borrow().map(|service| service.served)
    }

    /// Returns the error of a request that there is no room for, with the predicted time until there is some.
    pub(super) async fn overloaded(&self, message: String) -> ApiError {
        let (reply, predicted) = oneshot::channel();
        // A brain that is over predicts nothing, and takes no request either.
        let _ = self.notes.send(Note::Predict { reply }).await;
        ApiError::overloaded(message, predicted.await.unwrap_or(RETRY_AFTER_MIN))
    }
}
