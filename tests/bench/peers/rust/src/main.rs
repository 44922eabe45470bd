//! Peers of Tuskline in Rust: `peers PEER ROLE`, on the database of PEER_URL.
//!
//! Each role is a process of its own. `setup` makes the schema, and `preload TASKS` inserts in
//! bulk. `send RATE SECONDS CONNECTIONS` inserts one by one, and `work TASKS` executes until
//! standard input closes. The result goes to standard output, one JSON object a line (see `tally`).

mod awa_queue;
mod graphile;
mod pace;
mod plain;
mod tally;

use std::sync::Arc;

use anyhow::{Context as _, bail};

use pace::Pace;
use tally::Tally;

/// The role of the process.
enum Role {
    Setup,
    Preload(usize),
    Send(Pace),
    Work(Arc<Tally>),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [peer, role, numbers @ ..] = &words[..] else {
        bail!("usage: peers PEER ROLE [NUMBER...]")
    };
    let url = std::env::var("PEER_URL").context("PEER_URL")?;
    let role = read_role(role, numbers)?;
    match (peer.as_str(), role) {
        ("awa", Role::Setup) => awa_queue::setup(&url).await,
        ("awa", Role::Preload(tasks)) => awa_queue::preload(&url, tasks).await,
        ("awa", Role::Send(pace)) => awa_queue::send(&url, pace).await,
        ("awa", Role::Work(tally)) => awa_queue::work(&url, tally).await,
        ("graphile", Role::Setup) => graphile::setup(&url).await,
        ("graphile", Role::Preload(tasks)) => graphile::preload(&url, tasks).await,
        ("graphile", Role::Send(pace)) => graphile::send(&url, pace).await,
        ("graphile", Role::Work(tally)) => graphile::work(&url, tally).await,
        ("plain", Role::Setup) => plain::setup(&url).await,
        ("plain", Role::Preload(tasks)) => plain::preload(&url, tasks).await,
        ("plain", Role::Send(pace)) => plain::send(&url, pace).await,
        ("plain", Role::Work(tally)) => plain::work(&url, tally).await,
        _ => bail!("no peer {peer}"),
    }
}

fn read_role(role: &str, numbers: &[String]) -> anyhow::Result<Role> {
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|number| number.parse())
        .collect::<Result<_, _>>()
        .context("a number")?;
    Ok(match (role, &numbers[..]) {
        ("setup", []) => Role::Setup,
        ("preload", &[tasks]) => Role::Preload(usize::try_from(tasks)?),
        ("send", &[rate, seconds, connections]) => Role::Send(Pace { rate, seconds, connections }),
        ("work", &[tasks]) => Role::Work(Arc::new(Tally::new(tasks))),
        _ => bail!("no role {role} with {} numbers", numbers.len()),
    })
}
