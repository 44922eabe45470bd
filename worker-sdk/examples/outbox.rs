//! Transactional outbox: a purchase and its task commit together, or neither exists.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example outbox
//! ```
//!
//! It prints:
//!
//! ```text
//! lamp: bought
//! chair: the card was refused
//! shipping the lamp
//! the lamp's task: success
//! the chair left 0 rows and 0 tasks
//! ```

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, TaskId, Worker};

const LAMBDA: &str = "ship";
const LIMIT: Duration = Duration::from_secs(30);

/// Stores a purchase and schedules its shipment, in one transaction.
async fn buy(client: &Client, article: &str, paid: bool) -> Result<Option<TaskId>, Box<dyn Error>> {
    let mut connection = client.connection().await?;
    let mut transaction = connection.transaction().await?;
    transaction.execute("insert into example_purchase (article) values ($1)", &[&article]).await?;
    let id = Client::within(&mut transaction).schedule(&NewTask::new(LAMBDA, &article)).await?;
    if !paid {
        transaction.rollback().await?; // an early return by `?` rolls back, too
        return Ok(None);
    }
    transaction.commit().await?;
    connection.confirm()?; // and on the synchronous standby, if there is one
    Ok(Some(id))
}

async fn ship(article: String, _: Context) {
    println!("shipping the {article}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let connection = client.connection().await?;
    let table = "create table if not exists example_purchase (article text not null)";
    connection.batch_execute(table).await?;

    let lamp = buy(&client, "lamp", true).await?.ok_or("the lamp was not bought")?;
    println!("lamp: bought");
    if buy(&client, "chair", false).await?.is_none() {
        println!("chair: the card was refused");
    }

    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, ship))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());
    let end = client.wait(lamp, LIMIT).await?.ok_or("the task is gone")?;
    println!("the lamp's task: {}", end.status);

    let sql = "select (select count(*) from example_purchase where article = 'chair'),
                      (select count(*) from tuskline.tasks
                        where lambda = 'ship' and payload::text = '\"chair\"')";
    let left = connection.query_one(sql, &[]).await?;
    let (rows, tasks): (i64, i64) = (left.get(0), left.get(1));
    println!("the chair left {rows} rows and {tasks} tasks");
    stop.cancel();
    worker.await??;
    Ok(())
}
