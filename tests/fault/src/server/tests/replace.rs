//! Earlier copies that take a database's place: what was written before they were taken is there, and
//! nothing of later.

use super::*;

/// Writes a row that names the moment.
async fn write(server: &Server, database: &str, moment: &str) {
    let session = server.session(database).await.unwrap();
    let sql = format!(
        "create table if not exists moment (name text); insert into moment values ('{moment}')"
    );
    session.batch_execute(&sql).await.unwrap();
}

async fn moments(server: &Server, database: &str) -> String {
    server.ask(database, "select string_agg(name, ' ' order by name) from moment").await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_and_a_database_made_from_another_take_its_place() {
    let site = Site::new().unwrap();
    let server = Server::create(&site, "swapped", &[]).await.unwrap();
    server.session("postgres").await.unwrap().batch_execute("create database app").await.unwrap();
    write(&server, "app", "1").await;
    let stayed = server.session("app").await.unwrap();

    let dump = server.dir().join("dump");
    server.dump("app", &dump).await.unwrap();
    server.restore(&dump, "copy").await.unwrap();
    write(&server, "app", "2").await;
    server.close("app").await.unwrap();
    assert!(stayed.simple_query("select 1").await.is_err(), "its session was ended");
    assert!(server.session("app").await.is_err(), "no session is let in");
    server.swap("app", "copy", "past").await.unwrap();
    assert_eq!(moments(&server, "app").await, "1");
    server.open("past").await.unwrap();
    assert_eq!(moments(&server, "past").await, "1 2");
    server.drop_database("past").await.unwrap();

    server.close("app").await.unwrap();
    server.copy_database("app", "copy").await.unwrap();
    server.open("app").await.unwrap();
    write(&server, "app", "3").await;
    server.close("app").await.unwrap();
    server.swap("app", "copy", "past").await.unwrap();
    assert_eq!(moments(&server, "app").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_copy_and_a_base_backup_take_the_place_of_the_directories() {
    let site = Site::new().unwrap();
    let mut server = Server::create(&site, "put_back", &[]).await.unwrap();
    write(&server, "postgres", "1").await;
    server.stop(Stop::Fast).await.unwrap();
    let cold = server.keep_cold_copy("cold").await.unwrap();
    server.start().await.unwrap();
    write(&server, "postgres", "2").await;
    server.stop(Stop::Fast).await.unwrap();
    server.put_cold_copy_back(&cold).await.unwrap();
    server.start().await.unwrap();
    assert_eq!(moments(&server, "postgres").await, "1");

    let base = server.keep_base_backup("base").await.unwrap();
    write(&server, "postgres", "3").await;
    server.mark_point().await.unwrap();
    write(&server, "postgres", "4").await;
    server.stop(Stop::Fast).await.unwrap();
    server.put_base_backup_back(&base).await.unwrap();
    server.start().await.unwrap();
    server.forget_recovery(&base).unwrap();
    assert_eq!(moments(&server, "postgres").await, "1 3");
    write(&server, "postgres", "5").await;
    server.stop(Stop::Immediate).await.unwrap();
    server.start().await.unwrap();
    assert_eq!(moments(&server, "postgres").await, "1 3 5", "it is a primary like any other");
}
