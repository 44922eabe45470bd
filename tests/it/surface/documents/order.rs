use std::time::Duration;

use tuskline_sdk::{Client, NewTask, Priority, TaskId};

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn order(client: &Client, number: i64) -> Result<TaskId, Failure> {
    let mut connection = client.connection().await?;
    let transaction = connection.transaction().await?;
    transaction.execute("insert into purchase values ($1)", &[&number]).await?;
    let mail = NewTask::new("send_email", &serde_json::json!({ "order": number }))?
        .priority(Priority::High)
        .after(Duration::from_secs(60));
    let id = Client::within(&*transaction).schedule(&mail).await?;
    transaction.commit().await?; // the purchase and the mail, or neither
    connection.confirm()?; // and on the synchronous standby, if there is one
    Ok(id)
}
