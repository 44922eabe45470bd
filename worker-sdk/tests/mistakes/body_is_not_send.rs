use std::rc::Rc;

use tuskline_sdk::{Failure, Payload, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Thumbnail {
    width: u32,
}

impl Payload for Thumbnail {
    const LAMBDA: &'static str = "thumbnail";
}

async fn thumbnail(image: Thumbnail) -> Result<(), Failure> {
    let width = Rc::new(image.width);
    std::future::ready(()).await;
    drop(width);
    Ok(())
}

fn main() {
    let _ = Worker::builder("postgresql://localhost/app").lambda(thumbnail);
}
