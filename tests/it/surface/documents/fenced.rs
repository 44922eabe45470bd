use tuskline_sdk::{Context, Failure, Outcome};

async fn book(order: i64, context: Context) -> Result<Outcome, Failure> {
    let mut connection = context.client().connection().await?;
    let mut transaction = connection.transaction().await?;
    context.assert_current(&mut transaction).await?; // an attempt that is over gets ErrorKind::Fenced
    transaction.execute("insert into booking values ($1)", &[&order]).await?;
    let done = context.complete_in(&mut transaction, &()).await?;
    transaction.commit().await?; // the booking and the task's success, or neither
    Ok(done)
}
