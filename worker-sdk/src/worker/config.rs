//! Every knob of a worker, with its unit, default and reason.

use std::time::Duration;

use crate::error::{Code, Error};

/// A duration beyond this is as good as for ever, and counts as this: clocks cannot tell the end of any.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
/// Shortest pause of a loop.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// Knobs of a worker. Durations beyond a year count as a year. The defaults suit most; the timings must
/// satisfy [`WorkerConfig::check`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerConfig {
    /// Name of the installation that the database must have; the database refuses a worker that says
    /// another (TK041). None: the environment's `TUSKLINE_INSTALLATION`, else `default`, which is the
    /// name of a database that was given none. Default none.
    pub installation: Option<String>,
    /// Time between heartbeats (HB). Default 5 s.
    pub heartbeat_period: Duration,
    /// After so long without an acknowledged heartbeat, counted from when it was *sent*, the worker stops
    /// its bodies (T). Default 16 s.
    pub self_termination: Duration,
    /// How long store consumers must have seen no heartbeat, on clocks of their own, before another worker
    /// may claim the tasks (L). Default 20 s.
    pub lease: Duration,
    /// Time between T and the last instruction of any body (M). One third of it is for bodies to stop;
    /// then the process ends where one has not. Two thirds are what the watchdog thread may need to get
    /// a processor. Default 3 s.
    pub watchdog_margin: Duration,
    /// Relative difference between this machine's clock rate and the database's. Default 0.05.
    pub clock_drift: f64,
    /// Longest wait for the answer to one heartbeat. Default 1 s.
    pub heartbeat_timeout: Duration,
    /// Longest wait for the answer to any other call; then its connection is given up. Default 15 s.
    pub request_timeout: Duration,
    /// Connections that exchange results for new tasks. One does all short exchanges. For a backlog (a claim
    /// came back full) or a batch of results, two keep the database busy while one batch's answer is unpacked;
    /// more gain nothing on two cores. The last one is kept for lambdas without a backlog, so that their tasks
    /// do not wait for a batch. The first is opened at the start, the others when they are first needed.
    /// Default 3.
    pub exchange_connections: usize,
    /// Most tasks that one exchange claims, of all lambdas together. A commit costs as much as 50-100
    /// row transitions; beyond 500 the gain is under 3 %. Claims that the server cannot answer in time
    /// ask for less until it can. Default 500.
    pub max_batch: usize,
    /// Most bytes of outputs and error texts that one exchange sends, and of payloads that it claims. A
    /// single result goes alone if it has more, and a claim exceeds it by one payload at most. 8 MiB:
    /// some 30 ms of parsing, far from the 1 GiB that the database refuses. Default 8 MiB.
    pub max_batch_bytes: usize,
    /// Most tasks claimed ahead of free slots, per lambda, however short they are. Default 1000.
    pub max_buffer: usize,
    /// Most bytes of payloads of claimed tasks that have not begun, of all lambdas together. Beyond it
    /// only a lambda with a free slot and nothing claimed gets a task, one at a time. Default 32 MiB:
    /// four claims of `max_batch_bytes`, three of them under way.
    pub max_buffer_bytes: usize,
    /// No claimed task shall wait in this process for longer. Default 250 ms.
    pub buffer_target: Duration,
    /// How long a finished task's result waits for company. Default 3 ms.
    pub linger: Duration,
    /// Every queue is looked at this often, also without a notification. Default 1 s.
    pub safety_poll: Duration,
    /// Longest time between two looks at a queue while producers' transactions are open, or behind a
    /// transaction pooler. The first is 0.5 ms; a look that finds nothing doubles it, one that finds
    /// several tasks halves it. Up to 2.5 times that, by chance. Default 20 ms.
    pub busy_poll: Duration,
    /// A lower priority that was not served for so long gets one claim in four. Default 60 s.
    pub priority_ageing: Duration,
    /// On shutdown, how long running tasks may take to finish. Default 20 s.
    pub drain_grace: Duration,
    /// How long a task that was told to stop may take to do so. Default 5 s.
    pub cancel_grace: Duration,
    /// Concurrent executions per lambda, unless it says otherwise. Default 32.
    pub slots: usize,
    /// Threads for the bodies of each lambda, no more than it has slots. They are its own: a body that
    /// blocks its thread, or computes for long, delays none of another lambda. They start with its first
    /// task, and end when they have been quiet for a minute. Default: as many as there are processors.
    pub threads: usize,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            installation: None,
            heartbeat_period: Duration::from_secs(5),
            self_termination: Duration::from_secs(16),
            lease: Duration::from_secs(20),
            watchdog_margin: Duration::from_secs(3),
            clock_drift: 0.05,
            heartbeat_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(15),
            exchange_connections: 3,
            max_batch: 500,
            max_batch_bytes: 8 << 20,
            max_buffer: 1000,
            max_buffer_bytes: 32 << 20,
            buffer_target: Duration::from_millis(250),
            linger: Duration::from_millis(3),
            safety_poll: Duration::from_secs(1),
            busy_poll: Duration::from_millis(20),
            priority_ageing: Duration::from_secs(60),
            drain_grace: Duration::from_secs(20),
            cancel_grace: Duration::from_secs(5),
            slots: 32,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

impl WorkerConfig {
    /// Timings with one scale: heartbeat period `period`, everything else in the default proportion.
    /// For tests and demonstrations that cannot wait 20 s for a rescue.
    #[must_use]
    pub fn with_heartbeat(period: Duration) -> Self {
        let period = period.min(FOR_EVER);
        Self {
            heartbeat_period: period,
            heartbeat_timeout: period,
            self_termination: period * 4,
            watchdog_margin: period,
            lease: (period * 5).mul_f64(1.05) + Duration::from_millis(1),
            ..Self::default()
        }
    }

    /// The name that this worker says to the database.
    pub(crate) fn installation(&self) -> String {
        let given = || std::env::var("TUSKLINE_INSTALLATION").ok().filter(|name| !name.is_empty());
        self.installation.clone().or_else(given).unwrap_or_else(|| "default".to_owned())
    }

    /// Time for bodies to stop after T: a part of M.
    pub(crate) fn stop_time(&self) -> Duration {
        self.watchdog_margin / 3
    }

    /// With durations that can be calculated with.
    pub(crate) fn bounded(mut self) -> Self {
        self.safety_poll = self.safety_poll.max(LEAST_PAUSE);
        for duration in [
            &mut self.heartbeat_period,
            &mut self.self_termination,
            &mut self.lease,
            &mut self.watchdog_margin,
            &mut self.heartbeat_timeout,
            &mut self.request_timeout,
            &mut self.buffer_target,
            &mut self.linger,
            &mut self.safety_poll,
            &mut self.busy_poll,
            &mut self.priority_ageing,
            &mut self.drain_grace,
            &mut self.cancel_grace,
        ] {
            *duration = FOR_EVER.min(*duration);
        }
        self
    }

    /// Refuses timings under which two executions of one task could overlap, and empty bounds.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the formula that does not hold.
    pub fn check(&self) -> Result<(), Error> {
        #[cfg(mutants)]
        if crate::db::fault_injection::is("t_longer_than_l") {
            return Ok(());
        }
        self.clone().bounded().check_bounded()
    }

    fn check_bounded(&self) -> Result<(), Error> {
        self.check_pauses()?;
        let (t, l) = (self.self_termination, self.lease);
        let beats = self.heartbeat_period * 3 + self.heartbeat_timeout;
        if t < beats {
            let text = format!(
                "T >= 3 * HB + heartbeat_timeout must hold, got T = {t:?}, 3 * HB + heartbeat_timeout = {beats:?}"
            );
            return Err(Error::refused(Code::InvalidLease, text));
        }
        let least = (t + self.watchdog_margin).mul_f64(1.0 + self.clock_drift.abs());
        if l < least {
            let text = format!(
                "L >= (T + M) * (1 + drift) must hold, got L = {l:?}, (T + M) * (1 + drift) = {least:?}"
            );
            return Err(Error::refused(Code::InvalidLease, text));
        }
        if [self.exchange_connections, self.max_batch, self.slots, self.threads].contains(&0) {
            let text = "exchange_connections, max_batch, slots and threads must be at least 1";
            return Err(Error::refused(Code::InvalidSetting, text));
        }
        Ok(())
    }

    /// A loop without a pause would spin, and a deadline of zero is always over.
    fn check_pauses(&self) -> Result<(), Error> {
        let pauses = [
            ("heartbeat_period", self.heartbeat_period),
            ("heartbeat_timeout", self.heartbeat_timeout),
            ("request_timeout", self.request_timeout),
            ("busy_poll", self.busy_poll),
        ];
        if let Some((name, pause)) = pauses.iter().find(|(_, pause)| *pause < LEAST_PAUSE) {
            let text = format!("{name} must be at least {LEAST_PAUSE:?}, got {pause:?}");
            return Err(Error::refused(Code::InvalidSetting, text));
        }
        if !(0.0..=1.0).contains(&self.clock_drift.abs()) {
            let text = format!("clock_drift must be 0 to 1, got {}", self.clock_drift);
            return Err(Error::refused(Code::InvalidSetting, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_and_their_scaled_form_hold() {
        assert!(WorkerConfig::default().check().is_ok());
        assert!(WorkerConfig::with_heartbeat(Duration::from_millis(200)).check().is_ok());
    }

    #[test]
    fn a_lease_shorter_than_self_termination_is_refused_with_the_formula() {
        let config = WorkerConfig { lease: Duration::from_secs(17), ..Default::default() };
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with("TK010 invalid_lease: L >= (T + M) * (1 + drift)"), "{error}");
        let config =
            WorkerConfig { heartbeat_period: Duration::from_secs(6), ..Default::default() };
        assert!(config.check().unwrap_err().to_string().contains("T >= 3 * HB"));
    }

    #[test]
    fn what_no_deadline_can_be_reckoned_with_is_refused_by_name() {
        let refusal = |change: fn(&mut WorkerConfig)| {
            let mut config = WorkerConfig::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        let never = "heartbeat_period must be at least 1ms, got 0ns";
        assert!(refusal(|config| config.heartbeat_period = Duration::ZERO).contains(never));
        let drift = "clock_drift must be 0 to 1, got NaN";
        assert!(refusal(|config| config.clock_drift = f64::NAN).contains(drift));
        let error = WorkerConfig::with_heartbeat(Duration::MAX).check().unwrap_err().to_string();
        assert!(error.contains("TK010 invalid_lease"), "{error}");
    }
}
