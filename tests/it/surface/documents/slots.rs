use tuskline_sdk::{Lambda, Payload, Priority, Worker, WorkerBuilder};

#[derive(serde::Serialize, serde::Deserialize)]
struct Resize {
    image: u64,
}

impl Payload for Resize {
    const LAMBDA: &'static str = "resize";
}

async fn resize(resize: Resize) {
    println!("image {}", resize.image);
}

fn worker(url: &str) -> WorkerBuilder {
    Worker::builder(url).serve(Lambda::new(resize).slots(8).slots_for(Priority::Low, 2))
}
