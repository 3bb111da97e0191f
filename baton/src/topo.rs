//! `baton topo`: which worker reads from which over which lane, how fast, and for each faster lane why it was not
//! taken.
//!
//! Of a cluster it is told by its processes ([`scrape`]): by their metrics, and, in words, why lanes were passed
//! over; without any, the lanes of this host are measured ([`host`]), and its cards listed ([`cards`]). What is
//! deliberately absent: the choice of a lane, which is the transport's.

mod cards;
mod host;
mod map;
mod scrape;
mod text;

use crate::cli::Access;
use crate::error::CommandError;
use crate::output::print;
use map::{Failure, Map};
use proto::tls::{OperatorTls, explain};
use scrape::{ProcessAddress, Scraper};

/// Arguments of `baton topo`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopoArgs {
    /// Processes to ask: `baton serve`, or workers at their `worker.ops_listen`. Without any, the lanes of this host
    /// are measured, and its cards listed
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    access: Access,
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
}

/// Asks processes or measures this host, and prints the result. Errors: no process answers, or some do not.
pub(crate) fn topo(args: &TopoArgs) -> Result<(), CommandError> {
    if args.urls.is_empty() {
        let lanes = host::measure().map_err(CommandError::Failed)?;
        let cards = cards::find();
        let text = match args.json {
            true => format!("{:#}\n", serde_json::json!({ "host": lanes, "cuda": cards })),
            false => text::host(&lanes) + &cards.lines(),
        };
        return Ok(print(&text)?);
    }
    let (mut map, mut failed) = (Map::default(), Vec::new());
    let places = args.urls.iter().map(|url| ProcessAddress::parse(url).map(|place| (url, place)));
    let places = places.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let tls = match places.iter().any(|(_, place)| place.speaks_tls()) {
        true => Some(OperatorTls::read(&args.access.tls_files()?).map_err(wrong)?),
        false => None,
    };
    let scraper = Scraper { tls, authorization: args.access.authorization().map_err(wrong)? };
    for (url, place) in places {
        let told = scraper.ask(&place, "/metrics").and_then(|metrics| Ok((metrics, scraper.ask(&place, "/lanes")?)));
        match told.and_then(|(metrics, lanes)| map.add(&metrics, &lanes)) {
            Ok(()) => {}
            Err(error) => {
                let reason = explain(&error).unwrap_or_else(|| error.to_string());
                failed.push(Failure { url: url.clone(), reason });
            }
        }
    }
    let topology = map.finish(failed);
    let text = if args.json { format!("{:#}\n", serde_json::json!(topology)) } else { text::cluster(&topology) };
    print(&text)?;
    match topology.failed.len() {
        0 => Ok(()),
        failed => {
            let all = args.urls.len();
            Err(CommandError::Failed(format!("{failed} of {all} processes did not say which lanes they have").into()))
        }
    }
}

/// Says that the command line, or a file that it names, is wrong.
fn wrong(error: impl std::error::Error + 'static) -> CommandError {
    CommandError::Usage(error.into())
}
