//! `baton serve`: router and workers in one process.

use super::local::Local;
use super::model::Model;
use super::model_card::{described, model_card};
use super::role_name::role_name;
use super::router::router_config;
use super::running::Running;
use super::runtime::{END_MAX, listen, runtime};
use super::worker::failure;
use super::worker_setup::{Pool, Readers, Who, WorkerSetup};
use super::{ops, reload, shutdown, startup_banner, tls};
use crate::config::Config;
use crate::output::print;
use domain::WorkerId;
use domain::session::Role;
use proto::tls::PortUse;
use router::{Dialer, Listeners, ModelCard};
use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;
use threads::Doing;
use transport::{Hub, LaneStatus};

/// Serves until a signal ends it.
pub(crate) fn serve(running: &Arc<Running>) -> Result<(), Box<dyn Error>> {
    let config = &running.config();
    let metrics = telemetry::install();
    let runtime = runtime()?;
    let router_config = router_config(config, running)?;
    runtime.spawn(reload::follow(running.clone()));
    let api = listen(&runtime, "router.listen", &config.router.listen)?;
    let tls = tls::open(config, &runtime)?;
    let ops = ops::of_router(&runtime, &config.router.ops_listen, &tls)?;
    let listeners = Listeners { api: tls.port(api, PortUse::Api), ops };
    let (card, model) = open(config)?;

    let (pool, hub) = (Pool::of(config, &model, config.serve.prefill + config.serve.decode)?, Hub::new());
    let setups = everyone(config).map(|who| WorkerSetup::new(config, &model, &pool, who, &hub, Readers::Process));
    let mut setups = setups.collect::<Result<Vec<WorkerSetup>, _>>()?;
    let lane = connect(&mut setups);
    if lane.is_none() && config.serve.prefill > 0 {
        return Err("no lane joins the workers of this process: transport.lanes must have local".into());
    }
    let banner = startup_banner::serve(config, &listeners, &card, &pool, &setups, lane.as_ref())?;

    let (dialer, sessions) = Dialer::new(card.shape);
    let mut workers = Vec::with_capacity(setups.len());
    for setup in setups {
        let (peer, served, limits) = (setup.peer(), setup.served(), setup.limits());
        let worker = setup.start()?;
        running.add_worker(worker.input(), limits);
        let (dialer, local) = (dialer.clone(), Local::new(worker.input(), worker.role(), peer, served));
        runtime.spawn(async move { dialer.keep(&local).await });
        workers.push(worker);
    }
    print(&banner)?;
    let failed = Cell::new(None);
    let end = async {
        tokio::select! {
            () = shutdown::signal() => {}
            why = failure(&workers) => failed.set(Some(why)),
        }
    };
    threads::does(Doing::ServesListeners);
    runtime.block_on(router::serve(listeners, router_config, card, sessions, metrics, end))?;
    threads::does(Doing::EndsProcess);
    // Nobody asks the workers any more; they end with their threads. All know of it before the first has left the
    // others.
    workers.iter().for_each(|worker| worker.input().drain());
    drop(workers);
    runtime.shutdown_timeout(END_MAX);
    if let Some(why) = failed.take() {
        return Err(why.into());
    }
    tracing::info!("ended");
    Ok(())
}

/// The model, as its clients see it and as its workers run it. Its files are closed again.
fn open(config: &Config) -> Result<(ModelCard, Model), Box<dyn Error>> {
    let model = described(config)?;
    Ok((model_card(&model, &config.router)?, Model::load(config, model)?))
}

/// Returns the workers, prefill workers first; ids count from 1.
fn everyone(config: &Config) -> impl Iterator<Item = Who> {
    let of = |role, count| (1..=count).map(move |number| (role, number));
    let all = of(Role::Prefill, config.serve.prefill).chain(of(Role::Decode, config.serve.decode));
    all.zip(1..).map(|((role, number), id)| Who {
        id: WorkerId(id),
        role,
        name: format!("{}-{number}", role_name(role)),
    })
}

/// Connects every decode worker with every prefill worker, both ways, so that a lane that may not be taken is an error
/// now and not a slow request later. Gives the lane from the first decode worker to the first prefill worker.
fn connect(setups: &mut [WorkerSetup]) -> Option<LaneStatus> {
    let everyone: Vec<_> = setups.iter().map(|setup| (setup.who.id, setup.who.role)).collect();
    let mut lane = None;
    for setup in setups {
        for &(peer, role) in everyone.iter().filter(|&&(_, role)| role != setup.who.role) {
            setup.agent.connect(peer);
            if role == Role::Prefill && lane.is_none() {
                lane = setup.agent.lanes().into_iter().find(|&(id, _)| id == peer).map(|(_, status)| status);
            }
        }
    }
    lane
}
