use tuskline_sdk::{Client, Error};

#[derive(serde::Serialize, serde::Deserialize)]
struct Thumbnail {
    width: u32,
}

async fn upload(client: &Client) -> Result<(), Error> {
    client.schedule(Thumbnail { width: 80 }).await?;
    Ok(())
}

fn main() {}
