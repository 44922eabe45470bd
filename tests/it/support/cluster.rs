//! A run has one throw-away cluster, started by the first test that needs it.
//!
//! Every `#[tokio::test]` has a runtime of its own that ends with it, so the cluster is started by
//! a thread with another one. It stays in a static; `tuskline-postgres` stops the server and
//! removes its directory when the process ends, however it ends.

use std::sync::OnceLock;

use tokio_postgres::{Config, NoTls};
use tuskline_postgres::Cluster;

use super::clock;

/// The migrated database that tests clone.
pub const TEMPLATE: &str = "tuskline_template";

/// The same of cell 0, in a run whose test databases are of another cell.
const TEMPLATE_OF_CELL_0: &str = "tuskline_template_of_cell_0";

/// The same of cell 0 or the run's, with a schema that belongs to an ordinary role.
const TEMPLATE_OF_OWNER: &str = "tuskline_template_of_owner";

/// The ordinary role that owns the schema there. It makes roles.
pub const OWNER: &str = "app_owner";

static CLUSTER: OnceLock<Cluster> = OnceLock::new();
static OWNED: OnceLock<()> = OnceLock::new();

/// The cluster of this run.
pub fn shared() -> &'static Cluster {
    CLUSTER.get_or_init(|| {
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let cluster = start(settings()).await;
                if cell() != 0 {
                    make_template(&cluster, TEMPLATE_OF_CELL_0, 0).await;
                }
                cluster
            })
        })
        .join()
        .expect("a cluster for the tests")
    })
}

/// The cell of the test databases: that of `TUSKLINE_TEST_CELL`, else 0.
pub fn cell() -> u8 {
    std::env::var("TUSKLINE_TEST_CELL").map_or(0, |cell| cell.parse().unwrap())
}

/// The template of a cell, which is [`cell()`] or 0.
pub fn template_of(of_cell: u8) -> &'static str {
    if of_cell == cell() { TEMPLATE } else { TEMPLATE_OF_CELL_0 }
}

/// The template whose schema belongs to [`OWNER`].
pub fn owned_template() -> &'static str {
    let cluster = shared();
    OWNED.get_or_init(|| {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                cluster.create_database(TEMPLATE_OF_OWNER, None).await.unwrap();
                let mut config = cluster.config(TEMPLATE_OF_OWNER);
                let roles = format!(
                    "create role {OWNER} login createrole;
                     grant create on database {TEMPLATE_OF_OWNER} to {OWNER};
                     grant tuskline_scheduler, tuskline_worker, tuskline_operator, tuskline_team,
                       tuskline_viewer, tuskline_monitor to {OWNER} with admin option"
                );
                execute(&config, &roles).await;
                config.user(OWNER);
                migrate_template(&config, cell()).await;
            });
        })
        .join()
        .expect("a template with an owner");
    });
    TEMPLATE_OF_OWNER
}

/// A superuser of the clusters of this run.
pub fn superuser() -> &'static str {
    if is_ordinary() { "superuser" } else { "tuskline" }
}

/// Whether the role in every address is no superuser.
fn is_ordinary() -> bool {
    std::env::var("TUSKLINE_TEST_OWNER").is_ok_and(|owner| owner == "ordinary")
}

/// A cluster that a test may crash, with the template in it.
pub async fn own_cluster() -> Cluster {
    start(settings()).await
}

/// The same with other settings of the server.
pub async fn own_cluster_with(others: &[(&str, &str)]) -> Cluster {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let usual = settings().into_iter().filter(|(name, _)| others.iter().all(|(o, _)| o != name));
    start(usual.chain(others.iter().map(own)).collect()).await
}

async fn start(settings: Vec<(String, String)>) -> Cluster {
    let cluster = Cluster::temporary(settings).await.unwrap();
    if is_ordinary() {
        make_ordinary(&cluster).await;
    }
    execute(&cluster.config("postgres"), GROUPS).await;
    make_template(&cluster, TEMPLATE, cell()).await;
    cluster
}

/// The groups of roles, as `tuskline roles --print` makes them. A migration grants their verbs.
const GROUPS: &str = "
    create role tuskline_scheduler; create role tuskline_worker; create role tuskline_operator;
    create role tuskline_team; create role tuskline_viewer; create role tuskline_monitor;
    grant tuskline_scheduler, tuskline_worker, tuskline_operator, tuskline_team, tuskline_viewer,
      tuskline_monitor to current_user;
    grant pg_monitor to tuskline_monitor";

/// Closes each lambda that a test defines. Each group has the rights for its verbs, by name or on `*`, and
/// the owner of the schema has some by name. The triggers do what a grant does, without the audit.
const CLOSE: &str = "
    create function tuskline_test.own() returns trigger language plpgsql as $$
    begin
      insert into tuskline.lambda_grant (lambda, role, privilege, granted_at)
      select new.name, g.role, g.privilege, new.created_at
        from (values ('tuskline_team', 'own'), ('tuskline_scheduler', 'schedule'),
                     ('tuskline', 'schedule'), ('tuskline', 'work')) as g (role, privilege);
      return null;
    end $$;
    create trigger own after insert on tuskline.lambda
      for each row execute function tuskline_test.own();
    create function tuskline_test.close() returns trigger language plpgsql as $$
    begin
      new.schedulers := '{tuskline,tuskline_scheduler,tuskline_team}';
      return new;
    end $$;
    create trigger close before insert on tuskline.queue
      for each row execute function tuskline_test.close();
    select tuskline.grant_lambda('*', 'tuskline_worker', 'work'),
           tuskline.grant_lambda('*', 'tuskline_operator', 'operate', 'inspect'),
           tuskline.grant_lambda('*', 'tuskline_team', 'own'),
           tuskline.grant_lambda('*', 'tuskline_viewer', 'inspect'),
           tuskline.grant_lambda('*', 'tuskline_monitor', 'inspect');
    delete from tuskline.audit where verb = 'grant_lambda'";

async fn make_template(cluster: &Cluster, name: &str, cell: u8) {
    cluster.create_database(name, None).await.unwrap();
    migrate_template(&cluster.config(name), cell).await;
    if is_ordinary() {
        execute(&cluster.config(name), CLOSE).await;
    }
}

async fn migrate_template(config: &Config, cell: u8) {
    tuskline::migrate::migrate_in_cell(config, cell).await.unwrap();
    clock::install(config).await;
}

/// Gives the name in every address to a role that is no superuser. The role may do what tests do to
/// the server: make databases, roles and base backups, end sessions, count calls, and change some
/// settings.
async fn make_ordinary(cluster: &Cluster) {
    let mut config = cluster.config("postgres");
    execute(&config, "create role superuser superuser login").await;
    config.user("superuser");
    let ordinary = "alter role tuskline rename to initial;
         create role tuskline login createdb createrole replication
           in role pg_read_all_settings, pg_signal_backend;
         grant set on parameter track_functions, log_statement_stats, lc_messages,
           session_replication_role to tuskline;
         grant pg_read_all_stats, pg_monitor to tuskline with admin option";
    execute(&config, ordinary).await;
}

async fn execute(config: &Config, sql: &str) {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
}

/// The time zone is UTC for messages with a time. Autovacuum is off, because it would run at
/// moments of its own. The tests that read a backend's statistics flush them.
pub fn settings() -> Vec<(String, String)> {
    [
        ("timezone", "UTC"),
        ("autovacuum", "off"),
        ("shared_buffers", "128MB"),
        ("max_connections", "200"),
        ("max_prepared_transactions", "2"),
        ("track_io_timing", "off"),
        ("log_lock_waits", "on"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}
