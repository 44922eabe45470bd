use tuskline_sdk::Payload;

#[derive(serde::Serialize)]
struct Thumbnail {
    width: u32,
}

impl Payload for Thumbnail {
    const LAMBDA: &'static str = "thumbnail";
}

fn main() {}
