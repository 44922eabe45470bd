//! The scenery before the first fault: a server, the schema with its record, the lambdas and their
//! rules.

use tokio_postgres::NoTls;
use tuskline::migrate;
use tuskline_fault::server::{Clock, Disk, Server, Site, Volume};
use tuskline_history::Settings;

use super::{DATABASE, MOST, Scale, rate};
use crate::mutant::Mutant;
use crate::record;
use crate::role::{
    BRITTLE, CONTROLLED, EXECUTED, EXECUTED_ALONE, HOSTED, LAMBDAS, LIMITED, ORDERED, PILL, RATED,
};

/// Room for tables and for WAL: a soak of hours fits, and filling the rest takes a second.
const DATA_BYTES: u64 = 4 << 30;
const WAL_BYTES: u64 = 1 << 30;

/// On small disks, where the system lets us make them.
pub(super) async fn make_server(site: &Site) -> anyhow::Result<Server> {
    for missing in site.skipped() {
        eprintln!("fault: {missing}");
    }
    let disk = match Volume::try_mount_all(site, [DATA_BYTES, WAL_BYTES]).await? {
        Ok([data, wal]) => Disk::Both { data, wal },
        Err(skipped) => {
            eprintln!("fault: {skipped}");
            Disk::Plain
        }
    };
    Server::create_on(site, "one", &server_settings(), disk, Clock::Machine).await
}

fn server_settings() -> Vec<(&'static str, &'static str)> {
    vec![
        ("max_connections", "300"),
        ("shared_buffers", "256MB"),
        ("max_wal_size", "512MB"),
        ("deadlock_timeout", "200ms"),
        ("log_min_messages", "warning"),
    ]
}

/// The schema, the record, the lambdas; and, of a mutant, its flaw.
pub(super) async fn prepare_database(
    server: &Server,
    scale: &Scale,
    mutant: Option<&Mutant>,
) -> anyhow::Result<()> {
    let (client, connection) = server.config("postgres").connect(NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("create database {DATABASE}")).await?;
    let config = server.config(DATABASE);
    migrate::migrate(&config).await?;
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    record::install(&client).await?;
    // A worker is killed some hundred times: deaths in a row must not end the innocent. A pill dies
    // of the default.
    for name in LAMBDAS.into_iter().chain(CONTROLLED).chain([BRITTLE]).chain(HOSTED) {
        let crashes = if name == PILL { 3 } else { 100 };
        // In processes, the neighbours of a body that holds the interpreter's lock miss their deadlines, too.
        let attempts = match name {
            BRITTLE => 2,
            EXECUTED => 100,
            _ => 10,
        };
        let timeout_ms = match name {
            EXECUTED | EXECUTED_ALONE => scale.timings.lease_ms / 2,
            _ => scale.timings.lease_ms * 5,
        };
        client
            .execute(
                &format!(
                    "select tuskline.define_lambda($1, p_max_attempts => {attempts}, p_max_crashes => {crashes}, \
                     p_retry_base => '200 ms', p_retry_cap => '2 s', p_attempt_timeout => '{timeout_ms} ms')"
                ),
                &[&name],
            )
            .await?;
    }
    let sql = "select tuskline.set_order($1, 'skip'), tuskline.set_limit($2, $3)";
    client.execute(sql, &[&ORDERED, &LIMITED, &MOST.cast_signed()]).await?;
    let sql = "select tuskline.set_limit($1, p_per_second => $2)";
    client.execute(sql, &[&RATED, &rate(scale.tasks_per_second).per_second]).await?;
    if let Some(mutant) = mutant {
        mutant.break_database(&client).await?;
    }
    Ok(())
}

/// The settings of the run, for the history.
pub(super) fn settings(scale: &Scale, seed: u64, server: &Server) -> Settings {
    let timings = scale.timings;
    Settings {
        seed,
        heartbeat_ms: timings.heartbeat_ms,
        self_termination_ms: timings.self_termination_ms,
        // The watchdog's thread gets this part of M; the rest is for bodies to stop.
        margin_ms: timings.margin_ms * 2 / 3,
        lease_ms: timings.lease_ms,
        poll_ms: 1_000,
        limits: vec![(LIMITED.into(), MOST)],
        rates: vec![rate(scale.tasks_per_second)],
        versions: vec![
            format!("PostgreSQL {}", server.version()),
            crate::report::version(),
            crate::report::machine(),
        ],
    }
}
