use tuskline_sdk::{Payload, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Thumbnail {
    width: u32,
}

impl Payload for Thumbnail {
    const LAMBDA: &'static str = "thumbnail";
}

async fn thumbnail(image: Thumbnail) -> u32 {
    image.width
}

fn main() {
    let _ = Worker::builder("postgresql://localhost/app").lambda(thumbnail);
}
