//! Priorities: long tasks of low priority hold two slots of three, so an urgent task finds one free.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example priorities
//! ```
//!
//! It prints:
//!
//! ```text
//! a backfill begins
//! a backfill begins
//! an upload is done
//! a backfill begins
//! a backfill begins
//! the backfill is done: 4 of 4
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Priority, Status, Worker};

const LAMBDA: &str = "resize";
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;

    let mut backfill = Vec::new();
    for image in 1..=4 {
        let task = NewTask::new(LAMBDA, &image).priority(Priority::Low);
        backfill.push(task.collection("backfill"));
    }
    let backfill = client.schedule_many(&backfill).await?;

    // A backfill takes long: it waits until an upload was resized.
    let (begin, mut begun) = unbounded_channel();
    let uploaded = Arc::new(Semaphore::new(0));
    let door = Arc::clone(&uploaded);
    let body = move |_image: u32, context: Context| {
        let (begin, door) = (begin.clone(), Arc::clone(&door));
        async move {
            if context.collection() == Some("upload") {
                println!("an upload is done");
                door.add_permits(4);
                return Ok(());
            }
            println!("a backfill begins");
            begin.send(()).map_err(|_| "the service has ended")?;
            door.acquire().await.map_err(|_| "the door is closed")?.forget();
            Ok::<(), &str>(())
        }
    };
    let resize = Lambda::named(LAMBDA, body).slots(3).slots_for(Priority::Low, 2);
    let stop = CancellationToken::new();
    let worker = tokio::spawn(
        Worker::builder(&url).serve(resize).until(stop.clone().cancelled_owned()).run(),
    );

    for _ in 0..2 {
        timeout(LIMIT, begun.recv()).await?.ok_or("the worker has ended")?;
    }
    let upload = NewTask::new(LAMBDA, &5).priority(Priority::High).collection("upload");
    client.schedule(&upload).await?;

    let mut done = 0;
    for id in &backfill {
        let end = client.wait(*id, LIMIT).await?.ok_or("the task is gone")?;
        done += u32::from(end.status == Status::Success);
    }
    println!("the backfill is done: {done} of {}", backfill.len());
    stop.cancel();
    worker.await??;
    Ok(())
}
