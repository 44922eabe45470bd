//! Reads the functions of a migrated database, in a private PostgreSQL that is deleted at once.

use tokio_postgres::NoTls;
use tuskline_postgres::Cluster;

use crate::graph::Graph;

/// The parts of a migrated database that the figures need.
#[derive(Debug)]
pub struct Catalogue {
    /// The functions.
    pub graph: Graph,
    /// The meanings of a row of `timer`.
    pub timer_kinds: Vec<String>,
}

const FUNCTIONS: &str = "select proname::text, prosrc from pg_proc
     where pronamespace::regnamespace::text in ('tuskline', 'tuskline_core')
       and prosrc is not null
     order by 1, 2";
const KINDS: &str = "select enumlabel::text from pg_enum e join pg_type t on t.oid = e.enumtypid
     where t.typname = 'timer_kind' order by enumsortorder";

/// Reads a database with one lambda, which has functions of its own for each of its queues.
///
/// # Errors
/// PostgreSQL does not start, or a migration fails.
pub async fn read() -> anyhow::Result<Catalogue> {
    let cluster = Cluster::temporary(vec![("autovacuum".into(), "off".into())]).await?;
    let config = cluster.config("postgres");
    tuskline::migrate::migrate(&config).await?;
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    client.execute("select tuskline.define_lambda('work')", &[]).await?;
    let rows = client.query(FUNCTIONS, &[]).await?;
    let functions = rows.iter().map(|row| (row.get(0), row.get(1)));
    let kinds = client.query(KINDS, &[]).await?;
    Ok(Catalogue {
        graph: Graph::of(functions),
        timer_kinds: kinds.iter().map(|row| row.get(0)).collect(),
    })
}
