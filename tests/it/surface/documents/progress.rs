use tuskline_sdk::{Context, Error};

async fn import(rows: u64, context: Context) -> Result<(), Error> {
    let mut done: u64 = context.checkpoint().await?.unwrap_or(0); // of an attempt before this one
    while done < rows {
        done += 1_000; // ... and the work
        context.save(&done).await?;
        context.progress(100.0 * done as f32 / rows as f32, "importing").await?;
    }
    Ok(())
}
