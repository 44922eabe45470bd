use tuskline_sdk::{Chain, Client, Error, NewTask, On, TaskId};

async fn publish(client: &Client) -> Result<TaskId, Error> {
    let mut chain = Chain::new();
    let fetch = chain.task(NewTask::new("fetch", &"https://example.org/feed"));
    let parse = chain.task(NewTask::new("parse", &"feed"));
    chain.after(parse, fetch);
    let clean = chain.task(NewTask::new("clean_up", &"feed"));
    chain.after_end(clean, parse, On::Always);
    Ok(client.schedule_chain(&chain).await?.id(clean))
}
