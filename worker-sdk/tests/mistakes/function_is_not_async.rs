use tuskline_sdk::{Failure, Payload, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Thumbnail {
    width: u32,
}

impl Payload for Thumbnail {
    const LAMBDA: &'static str = "thumbnail";
}

fn thumbnail(_: Thumbnail) -> Result<(), Failure> {
    Ok(())
}

fn main() {
    let _ = Worker::builder("postgresql://localhost/app").lambda(thumbnail);
}
