use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tuskline_sdk::{Client, Failure, NewTask, TaskId};

use crate::tuskline_diesel::Diesel;

async fn order(connection: &mut AsyncPgConnection, article: &str) -> Result<TaskId, Failure> {
    let both = async |connection: &mut AsyncPgConnection| {
        let purchase = diesel::sql_query("insert into purchase values ($1)");
        purchase.bind::<Text, _>(article).execute(connection).await?;
        let mut tasks = Diesel(connection);
        Ok(Client::within(&mut tasks).schedule(NewTask::new("ship", &article)).await?)
    };
    connection.transaction(both).await // the purchase and the task, or neither
}
