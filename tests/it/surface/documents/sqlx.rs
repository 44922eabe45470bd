use sqlx::PgPool;
use tuskline_sdk::{Client, Failure, NewTask, TaskId};

async fn order(pool: &PgPool, article: &str) -> Result<TaskId, Failure> {
    let mut tx = pool.begin().await?;
    sqlx::query("insert into purchase values ($1)").bind(article).execute(&mut *tx).await?;
    let id = Client::within(&mut tx).schedule(NewTask::new("ship", &article)).await?;
    tx.commit().await?; // the purchase and the task, or neither
    Ok(id)
}
