//! The settings of a process that can change while it runs.

use proto::admin::{
    ChangeSettingsRequest, ChangeSettingsResponse, ListSettingsResponse, LogFilter, ReloadResponse, Setting,
    SettingChange,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use telemetry::logging;
use tonic::Status;

/// The setting of what is logged.
const LOG_LEVEL: &str = "log.level";

/// The settings of the process that is asked. Changes are judged and made as a whole or not at all.
pub trait Settings: Debug + Send + Sync {
    /// Lists those that can change while the process runs.
    fn list(&self) -> Vec<Setting>;

    /// Changes these, given by name as TOML or as a flag says them. Returns what differs now, in the order of the
    /// configuration page. Errors: nothing changes; it names the setting and why.
    fn change(&self, values: &BTreeMap<String, String>) -> Result<Vec<SettingChange>, Status>;

    /// Reads the configuration again, as on SIGHUP, and returns what differs now. Errors: nothing changes; it names
    /// what needs a restart, or what is wrong.
    fn reload(&self) -> Result<Vec<SettingChange>, Status>;
}

pub(crate) fn list(settings: &dyn Settings) -> ListSettingsResponse {
    ListSettingsResponse { settings: settings.list() }
}

pub(crate) fn change(
    settings: &dyn Settings,
    request: ChangeSettingsRequest,
) -> Result<ChangeSettingsResponse, Status> {
    let values: BTreeMap<_, _> = request.values.into_iter().collect();
    if values.is_empty() {
        return Err(Status::invalid_argument("no setting is named: `values` has the new value of each, by its name"));
    }
    Ok(ChangeSettingsResponse { changes: settings.change(&values)? })
}

pub(crate) fn reload(settings: &dyn Settings) -> Result<ReloadResponse, Status> {
    Ok(ReloadResponse { changes: settings.reload()? })
}

/// Changes what is logged, and returns the filter that it replaces, too.
pub(crate) fn set_log_filter(settings: &dyn Settings, filter: String) -> Result<LogFilter, Status> {
    let before = log_filter()?;
    settings.change(&BTreeMap::from([(LOG_LEVEL.to_owned(), filter.clone())]))?;
    Ok(LogFilter { filter, before })
}

/// Returns what is logged now. Errors: the process keeps no log.
pub(crate) fn log_filter() -> Result<String, Status> {
    logging::filter().map_err(|error| Status::failed_precondition(error.to_string()))
}
