//! The settings whose values can change while a process runs.

/// A setting that can change at run time, by a reload or by a call of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changeable {
    /// Its key.
    pub(crate) key: &'static str,
    /// What its value counts. Empty: nothing.
    pub(crate) unit: &'static str,
    /// The processes that it changes something in.
    of: Of,
}

/// Which processes use a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Those with a router.
    Routers,
    /// Routers that are processes of their own: others know their workers.
    LoneRouters,
    /// Those with workers.
    Workers,
    /// All.
    All,
}

/// The part of a cluster that a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A router with its workers.
    All,
    /// A router.
    Router,
    /// A worker.
    Worker,
}

impl Changeable {
    /// Returns whether the setting changes something in a process that is this part of a cluster.
    pub(crate) fn is_used_by(&self, part: Part) -> bool {
        match self.of {
            Of::Routers => part != Part::Worker,
            Of::LoneRouters => part == Part::Router,
            Of::Workers => part != Part::Router,
            Of::All => true,
        }
    }

    /// Returns the processes that use it, in words.
    pub(crate) fn users(&self) -> &'static str {
        match self.of {
            Of::Routers => "routers",
            Of::LoneRouters => "routers whose workers are processes of their own",
            Of::Workers => "workers",
            Of::All => "all processes",
        }
    }
}

const fn of(of: Of, key: &'static str, unit: &'static str) -> Changeable {
    Changeable { key, unit, of }
}

/// All, in the order of the configuration page.
pub(crate) const CHANGEABLE: [Changeable; 16] = [
    of(Of::Routers, "router.prompt_tokens_max", "tokens"),
    of(Of::Routers, "router.prompts_max", "prompts"),
    of(Of::Routers, "router.choices_max", "choices"),
    of(Of::Routers, "router.requests_max", "prompts"),
    of(Of::Routers, "router.deadline_s", "s"),
    of(Of::Routers, "admin.explained_max", "requests"),
    of(Of::LoneRouters, "cluster.workers", ""),
    of(Of::Workers, "engine.chunk_tokens", "tokens"),
    of(Of::Workers, "engine.running_max", "sequences"),
    of(Of::Workers, "engine.waiting_max", "requests"),
    of(Of::Routers, "placement.handoff", ""),
    of(Of::Routers, "placement.fetch", ""),
    of(Of::Routers, "placement.attempts_max", "attempts"),
    of(Of::Routers, "placement.index_blocks_max", "blocks"),
    of(Of::Routers, "traces.sample", ""),
    of(Of::All, "log.level", ""),
];

/// Returns the setting of this key, if it can change at run time.
pub(crate) fn changeable(key: &str) -> Option<&'static Changeable> {
    CHANGEABLE.iter().find(|setting| setting.key == key)
}
