use tuskline_sdk::{Context, Outcome};

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn book(order: i64, context: Context) -> Result<Outcome, Failure> {
    let mut connection = context.client().connection().await?;
    let transaction = connection.transaction().await?;
    context.assert_current(&transaction).await?; // an attempt that is over gets Error::Fenced
    transaction.execute("insert into booking values ($1)", &[&order]).await?;
    let done = context.complete_in(&transaction).await?;
    transaction.commit().await?; // the booking and the task's success, or neither
    Ok(done)
}
