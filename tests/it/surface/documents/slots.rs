use tuskline_sdk::{Context, Error, Lambda, Priority, Worker};

async fn resize(image: u64, _: Context) {
    println!("image {image}");
}

fn worker(url: &str) -> Result<Worker, Error> {
    let resize = Lambda::new("resize", resize).slots(8).slots_for(Priority::Low, 2);
    Ok(Worker::new(url)?.lambda(resize))
}
