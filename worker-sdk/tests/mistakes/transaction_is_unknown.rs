use tuskline_sdk::{Client, NewTask};

struct Transaction;

async fn order(mut transaction: Transaction) {
    let _ = Client::within(&mut transaction).schedule(NewTask::new("ship", &7)).await;
}

fn main() {
    let _ = order;
}
