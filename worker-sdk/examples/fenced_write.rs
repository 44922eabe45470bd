//! A fenced write: a booking and the success of its task are one commit, so no retry books twice.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example fenced_write
//! ```
//!
//! It prints:
//!
//! ```text
//! attempt 1 fails before its commit
//! attempt 2 commits
//! the task: success, {"seat":"12A"}
//! bookings: 1
//! one transaction wrote both: true
//! ```

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Worker};

const LAMBDA: &str = "book";
const LIMIT: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

async fn book(seat: String, context: Context) -> Result<Outcome, Failure> {
    let mut connection = context.client().connection().await?;
    let mut transaction = connection.transaction().await?;
    // An attempt that another one has replaced gets `ErrorKind::Fenced` here, and cannot commit.
    context.assert_current(&mut transaction).await?;
    let insert = "insert into example_booking (task_id, seat) values ($1, $2)";
    transaction.execute(insert, &[&context.task().0, &seat]).await?;
    if context.attempt() == 1 {
        println!("attempt 1 fails before its commit");
        return Err("the connection to the airline broke".into());
    }
    let done = context.complete_in(&mut transaction, &json!({ "seat": seat })).await?;
    println!("attempt {} commits", context.attempt());
    transaction.commit().await?; // the booking and the success, or neither
    connection.confirm()?; // and on the synchronous standby, if there is one
    Ok(done)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let connection = client.connection().await?;
    let table = "create table if not exists example_booking (task_id bigint not null, seat text)";
    connection.batch_execute(table).await?;

    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, book))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let id = client.schedule(&NewTask::new(LAMBDA, &"12A")).await?;
    let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
    println!("the task: {}, {}", end.status, end.output.unwrap_or_default());
    let sql = "select count(*), bool_and(b.xmin = t.xmin)
                 from example_booking b join tuskline.task t on t.id = b.task_id where t.id = $1";
    let row = connection.query_one(sql, &[&id.0]).await?;
    let (bookings, together): (i64, Option<bool>) = (row.get(0), row.get(1));
    println!("bookings: {bookings}");
    println!("one transaction wrote both: {}", together.unwrap_or_default());
    stop.cancel();
    worker.await??;
    Ok(())
}
