use std::time::Duration;

use tuskline_sdk::WorkerConfig;

fn patient() -> WorkerConfig {
    let mut config = WorkerConfig::default();
    config.self_termination = Duration::from_secs(40); // bodies go on through a failover of 40 s
    config.watchdog_margin = Duration::from_secs(6); // bodies have 2 s to stop
    config.lease = Duration::from_secs(50); // a dead worker's tasks run elsewhere after 50 s
    config
}
