//! `baton serve`: router and workers in one process.

use super::card::card;
use super::local::Local;
use super::model::{Model, Source};
use super::router::router_config;
use super::runtime::{END_MAX, listen, runtime};
use super::seat::{Pool, Reach, Seat, Who};
use super::worker::{WORKER_FAILED, has_failed};
use super::{ops, role_name, shutdown, tiers, welcome};
use crate::config::Config;
use crate::output::print;
use domain::WorkerId;
use domain::session::Role;
use router::{Dialer, Listeners, ModelCard};
use std::cell::Cell;
use std::error::Error;
use transport::{Hub, LaneStatus};

/// Serves until a signal ends it.
pub(crate) fn serve(config: &Config) -> Result<(), Box<dyn Error>> {
    let metrics = telemetry::install();
    let runtime = runtime()?;
    let api = listen(&runtime, "router.listen", &config.router.listen)?;
    let listeners = Listeners { api, ops: ops::of_router(&runtime, &config.router.ops_listen)? };
    let (card, model) = open(config)?;

    let (pool, hub) = (Pool::of(config, &model)?, Hub::new());
    let seats = everyone(config).map(|who| Seat::new(config, &model, &pool, who, &hub, Reach::Process));
    let mut seats = seats.collect::<Result<Vec<Seat>, _>>()?;
    let lane = connect(&mut seats);
    if lane.is_none() && config.serve.prefill > 0 {
        return Err("no lane joins the workers of this process: transport.lanes must have local".into());
    }
    let welcome = welcome::serve(&listeners, &card, &pool, &seats, lane.as_ref(), tiers::describe(config))?;

    let (dialer, sessions) = Dialer::new(card.shape);
    let mut workers = Vec::with_capacity(seats.len());
    for seat in seats {
        let (peer, served) = (seat.peer(), seat.served());
        let worker = seat.start()?;
        let (dialer, local) = (dialer.clone(), Local::new(worker.input(), peer, served));
        runtime.spawn(async move { dialer.keep(&local).await });
        workers.push(worker);
    }
    print(&welcome)?;
    let failed = Cell::new(false);
    let end = async {
        tokio::select! {
            () = shutdown::signal() => {}
            () = has_failed(&workers) => failed.set(true),
        }
    };
    runtime.block_on(router::serve(listeners, router_config(config), card, sessions, metrics, end))?;
    // Nobody asks the workers any more; they end with their threads. All know of it before the first has left the others.
    workers.iter().for_each(|worker| worker.input().drain());
    drop(workers);
    runtime.shutdown_timeout(END_MAX);
    if failed.get() {
        return Err(WORKER_FAILED.into());
    }
    tracing::info!("ended");
    Ok(())
}

/// The model, as its clients see it and as its workers run it. Its files are closed again.
fn open(config: &Config) -> Result<(ModelCard, Model), Box<dyn Error>> {
    let source = Source::open(config)?;
    Ok((card(&source)?, Model::load(config, &source)?))
}

/// The workers, prefill workers first; ids count from 1.
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
fn connect(seats: &mut [Seat]) -> Option<LaneStatus> {
    let everyone: Vec<_> = seats.iter().map(|seat| (seat.who.id, seat.who.role)).collect();
    let mut lane = None;
    for seat in seats {
        for &(peer, role) in everyone.iter().filter(|&&(_, role)| role != seat.who.role) {
            seat.agent.connect(peer);
            if role == Role::Prefill && lane.is_none() {
                lane = seat.agent.lanes().into_iter().find(|&(id, _)| id == peer).map(|(_, status)| status);
            }
        }
    }
    lane
}
