//! Disturbances by SQL.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use super::*;

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_ended_cancelled_blocked_and_kept_out() {
    let site = Site::new().unwrap();
    let settings = [("max_connections", "12"), ("superuser_reserved_connections", "2")];
    let server = Server::create(&site, "disturbed", &settings).await.unwrap();
    ends_and_cancels(&server).await;
    locks_rows(&server).await;
    holds_a_snapshot(&server).await;
    uses_up_connections(&server).await;
}

async fn ends_and_cancels(server: &Server) {
    let guests = [guest(server).await, guest(server).await, guest(server).await];
    assert_eq!(server.terminate_backends("elsewhere", 9, 7).await.unwrap(), 0);
    assert_eq!(server.terminate_backends("postgres", 2, 7).await.unwrap(), 2);
    let mut alive = Vec::new();
    for guest in guests {
        if guest.simple_query("select 1").await.is_ok() {
            alive.push(guest);
        }
    }
    assert_eq!(alive.len(), 1, "two of three were ended");
    let guests_left = format!(
        "select count(*)::text from pg_stat_activity
         where backend_type = 'client backend' and application_name <> '{OURS}'"
    );
    let sleeps = alive[0].simple_query("select pg_sleep(600)");
    let cancelled = async {
        let asleep = "select count(*)::text from pg_stat_activity where wait_event = 'PgSleep'";
        server.ask_until(asleep, "1", DEADLINE).await.unwrap();
        // The ended sessions stay on the list until they are gone.
        server.ask_until(&guests_left, "1", DEADLINE).await.unwrap();
        server.cancel_backends("postgres", 9, 7).await.unwrap()
    };
    let (slept, cancelled) = tokio::join!(sleeps, cancelled);
    assert_eq!((slept.unwrap_err().code(), cancelled), (Some(&SqlState::QUERY_CANCELED), 1));
}

async fn locks_rows(server: &Server) {
    let session = guest(server).await;
    let rows = "create table locked as select generate_series(1, 5) as id";
    session.batch_execute(rows).await.unwrap();
    let lock = "select id::bigint from locked where id <= 3 for update";
    let free = "select count(*)::text from (select from locked for update skip locked) free";
    let looks = server.ask_until(free, "2", DEADLINE);
    let holds = async |lock, duration| {
        let locked = server.lock_rows("postgres", lock).await?;
        let ids = locked.ids.clone();
        locked.hold(duration).await.map(|()| ids)
    };
    tokio::select! {
        ended = holds(lock, LONG) => panic!("it holds on: {ended:?}"),
        seen = looks => seen.unwrap(),
    }
    server.ask_until(free, "5", DEADLINE).await.expect("dropping it lets go");
    assert_eq!(holds(lock, Duration::ZERO).await.unwrap(), [1, 2, 3]);
    assert!(holds("select nonsense", LONG).await.is_err());
}

async fn holds_a_snapshot(server: &Server) {
    let held = "select count(*)::text from pg_stat_activity
         where state = 'idle in transaction' and backend_xmin is not null";
    let looks = server.ask_until(held, "1", DEADLINE);
    tokio::select! {
        ended = server.hold_snapshot("postgres", LONG) => panic!("it holds on: {ended:?}"),
        seen = looks => seen.unwrap(),
    }
}

async fn uses_up_connections(server: &Server) {
    let refused = async {
        // The test keeps every session that it gets. A slot given up at this moment would otherwise
        // stay free.
        let mut got = Vec::new();
        while let Ok(connected) = server.config("postgres").connect(NoTls).await {
            got.push(connected);
            assert!(got.len() < 7, "there was always room");
            tokio::time::sleep(PAUSE).await;
        }
    };
    let kept = server.use_up_connections("postgres", 100, LONG);
    tokio::select! {
        ended = kept => panic!("it holds on: {ended:?}"),
        () = refused => {}
    }
    server.wait_until_answering(DEADLINE).await.expect("dropping it lets go");
    let got = server.use_up_connections("postgres", 3, Duration::ZERO).await.unwrap();
    assert_eq!(got, 3);
}

async fn guest(server: &Server) -> Client {
    let (client, connection) = server.config("postgres").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
