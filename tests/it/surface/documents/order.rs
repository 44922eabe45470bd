use std::time::Duration;

use tuskline_sdk::{Client, Failure, Payload, Priority, TaskId};

#[derive(serde::Serialize, serde::Deserialize)]
struct Receipt {
    order: i64,
}

impl Payload for Receipt {
    const LAMBDA: &'static str = "send_email";
}

async fn order(client: &Client, number: i64) -> Result<TaskId, Failure> {
    let mut connection = client.connection().await?;
    let mut transaction = connection.transaction().await?;
    transaction.execute("insert into purchase values ($1)", &[&number]).await?;
    let mail = Receipt { order: number }.after(Duration::from_secs(60)).priority(Priority::High);
    let id = Client::within(&mut transaction).schedule(mail).await?;
    transaction.commit().await?; // the purchase and the mail, or neither
    connection.confirm()?; // and on the synchronous standby, if there is one
    Ok(id)
}
