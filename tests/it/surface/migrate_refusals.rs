//! A migration runs with all rights of its role. It refuses a session with foreign settings, and a
//! schema in which another role could have planted code.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use tuskline::migrate::{Error, migrate};

use crate::support::{Db, shared, within};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A database without a schema, and a role that may log in and create the named objects, and no
/// more.
struct Bare {
    config: Config,
    admin: Client,
    stranger: String,
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = within(config.connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn bare() -> Bare {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("bare_{number}");
    shared().create_database(&name, None).await.unwrap();
    let config = shared().config(&name);
    let admin = connect(&config).await;
    let stranger = format!("mallory_{number}");
    admin.batch_execute(&format!("create role {stranger} login")).await.unwrap();
    Bare { config, admin, stranger }
}

impl Bare {
    async fn by_stranger(&self, sql: &str) {
        let stranger = connect(&self.config).await;
        let sql = format!("set session authorization {}; {sql}", self.stranger);
        stranger.batch_execute(&sql).await.unwrap();
    }

    async fn is(&self, question: &str) -> bool {
        self.admin.query_one(question, &[]).await.unwrap().get(0)
    }

    async fn refused(&self) -> String {
        migrate(&self.config).await.unwrap_err().to_string()
    }
}

/// The pooler between refuses the startup parameter `options`, or ignores it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pooler {
    Refuses,
    Ignores,
}

pub(super) async fn pool(listener: TcpListener, socket: PathBuf, how: Pooler) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let server = UnixStream::connect(&socket).await.unwrap();
        tokio::spawn(pool_one(client, server, how));
    }
}

async fn pool_one(mut client: TcpStream, mut server: UnixStream, how: Pooler) {
    let mut length = [0; 4];
    client.read_exact(&mut length).await.unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut body).await.unwrap();
    let words: Vec<&[u8]> = body[4..].split(|byte| *byte == 0).collect();
    let pairs: Vec<&[&[u8]]> = words.chunks_exact(2).filter(|pair| !pair[0].is_empty()).collect();
    if matches!(how, Pooler::Refuses) && pairs.iter().any(|pair| pair[0] == b"options") {
        let said = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
        let length = u32::try_from(said.len() + 4).unwrap().to_be_bytes();
        let said = [b"E", &length[..], said].concat();
        client.write_all(&said).await.unwrap();
        return;
    }
    let mut startup = body[..4].to_vec();
    for pair in pairs.iter().filter(|pair| pair[0] != b"options") {
        startup.extend([pair[0], b"\0", pair[1], b"\0"].concat());
    }
    startup.push(0);
    let length = u32::try_from(startup.len() + 4).unwrap().to_be_bytes();
    server.write_all(&[&length[..], &startup].concat()).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test]
async fn behind_a_pooler_that_has_no_options_no_function_of_another_role_is_called() {
    for how in [Pooler::Refuses, Pooler::Ignores] {
        let bare = bare().await;
        bare.admin.batch_execute("grant create on schema public to public").await.unwrap();
        // Better matches than the system's own format(text, variadic "any").
        for number in ["bigint", "integer"] {
            let planted = format!(
                "create function public.format(text, {number}) returns text language plpgsql as $$
                 begin
                   if (select rolsuper from pg_roles where rolname = current_user) then
                     execute 'alter role {} superuser';
                   end if;
                   return pg_catalog.format($1, $2);
                 end $$",
                bare.stranger
            );
            bare.by_stranger(&planted).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new();
        config.host("127.0.0.1").port(listener.local_addr().unwrap().port());
        config.user(bare.config.get_user().unwrap()).dbname(bare.config.get_dbname().unwrap());
        config.ssl_mode(SslMode::Disable);
        let socket = Db::socket(&bare.config);
        let pooler = tokio::spawn(pool(listener, socket, how));

        let migrated = within(migrate(&config)).await;
        let superuser =
            format!("select rolsuper from pg_roles where rolname = '{}'", bare.stranger);
        assert!(!bare.is(&superuser).await, "{how:?}: a stranger became superuser");
        let refused = migrated.unwrap_err();
        assert!(matches!(refused, Error::Settings(_)), "{how:?}: {refused}");
        assert!(refused.to_string().contains("connect to the server directly"), "{refused}");
        assert!(bare.is("select to_regnamespace('tuskline') is null").await, "{how:?}");
        pooler.abort();
    }
}

#[tokio::test]
async fn a_schema_that_another_role_made_is_refused() {
    let bare = bare().await;
    let grant = format!(
        "grant create on database {} to {}",
        bare.config.get_dbname().unwrap(),
        bare.stranger
    );
    bare.admin.batch_execute(&grant).await.unwrap();
    // The view that migrate reads first is a trap.
    let trap = format!(
        "create schema tuskline;
         create function tuskline.trap() returns integer language plpgsql as $$
         begin execute 'alter role {} superuser'; return 1; end $$;
         create view tuskline.stamp as select tuskline.trap() as schema_version, '' as digest",
        bare.stranger
    );
    bare.by_stranger(&trap).await;
    let refused = bare.refused().await;
    let superuser = format!("select rolsuper from pg_roles where rolname = '{}'", bare.stranger);
    assert!(!bare.is(&superuser).await, "a stranger became superuser");
    let said = format!("schema tuskline belongs to role {}, not to ", bare.stranger);
    assert!(refused.contains(&said) && refused.contains("drop the schema"), "{refused}");
    let made = "select count(*) = 1 from pg_class where relnamespace = 'tuskline'::regnamespace";
    assert!(bare.is(made).await, "nothing was made in it");
}

#[tokio::test]
async fn a_schema_in_which_another_role_owns_something_or_may_create_it_is_refused() {
    let bare = bare().await;
    within(migrate(&bare.config)).await.unwrap();
    let grant =
        format!("grant usage, create on schema tuskline, tuskline_core to {}", bare.stranger);
    bare.admin.batch_execute(&grant).await.unwrap();
    let refused = bare.refused().await;
    let said = format!("revoke create on schema tuskline from {} cascade", bare.stranger);
    assert!(refused.contains(&said), "{refused}");
    for (made, said) in [
        ("create table tuskline.planted ()", "tuskline.planted belongs to role"),
        (
            "create function tuskline_core.segment_of(integer) returns bigint language sql as 'select 0::bigint'",
            "function tuskline_core.segment_of(integer) belongs to role",
        ),
        ("create domain tuskline.planted_too as text", "type tuskline.planted_too belongs to role"),
    ] {
        bare.by_stranger(made).await;
        let refused = bare.refused().await;
        assert!(refused.contains(said), "{refused}");
        bare.admin.batch_execute(&format!("drop owned by {}", bare.stranger)).await.unwrap();
        bare.admin.batch_execute(&grant).await.unwrap();
    }
    bare.admin.batch_execute(&format!("drop owned by {}", bare.stranger)).await.unwrap();
    within(migrate(&bare.config)).await.unwrap();
}

/// The role's name needs quotes, and it got its right from another role, which got it from the
/// owner.
#[tokio::test]
async fn the_revoke_that_migrate_prints_runs_as_printed() {
    let bare = bare().await;
    within(migrate(&bare.config)).await.unwrap();
    let odd = format!("odd \"\" name of {}", bare.stranger);
    bare.admin
        .batch_execute(&format!(
            "create role \"{odd}\"; grant create on schema tuskline to {} with grant option;
             grant usage on schema tuskline to {0}",
            bare.stranger
        ))
        .await
        .unwrap();
    bare.by_stranger(&format!("grant create on schema tuskline to \"{odd}\"")).await;
    bare.admin.batch_execute("grant create on schema tuskline_core to public").await.unwrap();
    for _ in 0..3 {
        let Err(refused) = within(migrate(&bare.config)).await else { break };
        let refused = refused.to_string();
        let at = refused.find("revoke create").unwrap();
        let statement = refused[at..].split(';').next().unwrap();
        bare.admin.batch_execute(statement).await.unwrap();
    }
    within(migrate(&bare.config)).await.unwrap();
    bare.admin.batch_execute(&format!("drop role \"{odd}\"")).await.unwrap();
}

#[tokio::test]
async fn a_database_whose_triggers_do_not_fire_is_refused() {
    let bare = bare().await;
    let name = bare.config.get_dbname().unwrap();
    let set = format!("alter database {name} set session_replication_role = replica");
    bare.admin.batch_execute(&set).await.unwrap();
    let refused = bare.refused().await;
    assert!(
        refused.contains("session_replication_role must be origin, got \"replica\""),
        "{refused}"
    );
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let bare = bare().await;
        let name = format!("encoded_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let make =
            format!("create database {name} encoding '{encoding}' locale 'C' template template0");
        bare.admin.batch_execute(&make).await.unwrap();
        let refused = migrate(&shared().config(&name)).await.unwrap_err();
        let said =
            format!("must be encoded in UTF8, it is {encoding}: create it with encoding 'UTF8'");
        assert!(refused.to_string().contains(&said), "{refused}");
        let other = connect(&shared().config(&name)).await;
        let none = "select to_regnamespace('tuskline') is null";
        assert!(other.query_one(none, &[]).await.unwrap().get::<_, bool>(0), "{encoding}");
    }
}
