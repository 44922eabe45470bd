use tuskline_sdk::{NewTask, Payload, Priority};

#[derive(serde::Serialize, serde::Deserialize)]
struct Invoice {
    number: u64,
}

impl Payload for Invoice {
    const LAMBDA: &'static str = "send_invoice";

    fn defaults(&self, task: NewTask) -> NewTask {
        task.priority(Priority::High).unique_key(self.number.to_string())
    }
}
