//! Everything that speaks to the database: connections, and the verbs that workers call. It knows neither
//! the client nor the worker.

pub(crate) mod address;
pub(crate) mod backoff;
pub(crate) mod connect;
#[cfg(mutants)]
pub(crate) mod fault_injection;
pub(crate) mod hsc;
pub(crate) mod json;
pub(crate) mod low_water_mark;
pub(crate) mod multi_host;
pub(crate) mod parameter;
pub(crate) mod role;
pub(crate) mod tls;
pub(crate) mod uncertain_commit;
pub(crate) mod version;

use std::time::Duration;

pub(crate) use parameter::Parameters;

/// A duration as PostgreSQL reads it; whole days stay days, for the people who read the tables.
pub(crate) fn interval(duration: Duration) -> String {
    const DAY: u64 = 86_400;
    match duration.as_secs() {
        seconds if duration.subsec_nanos() == 0 && seconds > 0 && seconds % DAY == 0 => {
            format!("{} days", seconds / DAY)
        }
        _ => format!("{} seconds", duration.as_secs_f64()),
    }
}
