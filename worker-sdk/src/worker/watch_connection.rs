//! The watch connection: it LISTENs, holds the locks of sleeping queues' bells, and peeks at these queues
//! from time to time.
//!
//! A NOTIFY takes a database-wide lock at commit (60-86 % of the insert rate when each insert sends one).
//! So producers send one only while a connection holds the bell of their queue. A notification is a hint:
//! without it tasks start at the safety poll, which is a peek on this connection, or a claim if the peek
//! gets no answer.
//!
//! Queues share bells, so neither locks nor LISTENs grow with the queues. A bell is held while one of our
//! queues sleeps under it, and it is given up as a whole: all our queues on it are awake before its lock
//! goes. Another worker may hold a bell for a queue that we do not serve. So we take the calls for our
//! queues, and peek whenever we ask for the bell (`standby`).

mod standby;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use crate::db::backoff::Backoff;
use crate::db::connect::{
    ConnectionError, Heard, Notifications, Session, connect_listening, in_time,
};
use crate::db::hsc;
use crate::db::hsc::Watched;
use crate::worker::connections;
use crate::worker::controller::{Controller, Holder, Peek, WatchEvent, WatchRequest};
use crate::worker::database::Database;
use standby::Standby;

/// The connection proves itself alive at least this often: a network that swallows packets says nothing by
/// itself.
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// A peek comes this part of the safety poll after the last, so that no claim has to poll.
const PEEK_SHARE: f64 = 0.95;
/// Longest wait for any answer on the connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// The failures of this part, as they are logged. A test that keeps a history of the worker reads the first from the trace.
const LOST: &str = "watch connection lost; polling until it is back";
const CANNOT_OPEN: &str = "the watch connection cannot be opened; polling until it can";

pub(crate) struct WatchConnection {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    pub requests: mpsc::UnboundedReceiver<WatchRequest>,
    /// Tells the heartbeat that a cancellation of one of our tasks was requested.
    pub beat_now: Arc<Notify>,
}

impl WatchConnection {
    /// Runs until dropped. Every reconnect listens first and looks at every queue after.
    pub(crate) async fn run(mut self) {
        if self.controller.pooled {
            return std::future::pending().await;
        }
        let mut backoff = Backoff::default();
        loop {
            let mut shortage = false;
            match self.open().await {
                Ok((client, heard)) => {
                    backoff.reset();
                    // Requests to the last connection do not matter to this one.
                    while self.requests.try_recv().is_ok() {}
                    self.controller.watch_event(WatchEvent::AllMayHaveTasks);
                    self.db.opener.outage_log.works(CANNOT_OPEN);
                    let error = self.serve(&client, heard).await;
                    self.controller.watch_event(WatchEvent::Lost);
                    self.db.opener.outage_log.failed(LOST, &error);
                }
                Err(error) => {
                    shortage = error.shortage;
                    self.db.opener.outage_log.failed(CANNOT_OPEN, &error);
                }
            }
            while let Ok(request) = self.requests.try_recv() {
                if let WatchRequest::Watch(bell) = request {
                    self.bell_answered(bell, Watched::Busy);
                }
            }
            let pause = if shortage { connections::pause() } else { backoff.rest() };
            tokio::time::sleep(pause).await;
        }
    }

    async fn open(&self) -> Result<(Session, Notifications), ConnectionError> {
        let listen: String = std::iter::once("listen tuskline_queue;".to_owned())
            .chain(self.controller.bells().iter().map(|bell| format!("listen {CHANNEL}{bell};")))
            .chain(std::iter::once(format!("listen tuskline_executor_{};", self.db.executor)))
            .collect();
        self.db.opener.connections.until_heartbeat().await;
        let open = async {
            let address = &self.db.opener.address;
            let (client, heard) = connect_listening(address, ANSWER_LIMIT).await?;
            client.batch_execute(&listen).await?;
            Ok::<_, tokio_postgres::Error>((client, heard))
        };
        in_time(ANSWER_LIMIT, open).await
    }

    async fn serve(&mut self, client: &Session, mut heard: Notifications) -> String {
        let mut bells = Bells::default();
        let period = self.controller.config.safety_poll.mul_f64(PEEK_SHARE).min(PROBE_PERIOD);
        let mut peeks = tokio::time::interval(period);
        peeks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut peeked_at = Instant::now();
        loop {
            let ask_at = bells.standby.next_at();
            let answered = tokio::select! {
                heard = heard.recv() => match heard {
                    Some(heard) => self.notified(client, &mut bells, &heard).await,
                    None => return "connection closed".into(),
                },
                Some(request) = self.requests.recv() => self.act_on(client, &mut bells, request).await,
                () = sleep_until(ask_at) => {
                    let due = bells.standby.due(Instant::now());
                    self.watch(client, &mut bells, &due).await
                }
                _ = peeks.tick() => self.peek(client, &mut peeked_at).await,
            };
            if let Err(error) = answered {
                return error;
            }
        }
    }

    /// The safety poll of all that sleeps; of nothing, if the connection has been silent for long.
    async fn peek(&self, client: &Session, peeked_at: &mut Instant) -> Result<(), String> {
        let now = Instant::now();
        let peeks = self.controller.peeks(None, now);
        if peeks.is_empty() && now < *peeked_at + PROBE_PERIOD {
            return Ok(());
        }
        *peeked_at = now;
        self.peek_at(client, &peeks, now).await
    }

    async fn peek_at(
        &self,
        client: &Session,
        peeks: &[Peek],
        sent_at: Instant,
    ) -> Result<(), String> {
        let ids: Vec<_> = peeks.iter().map(|peek| peek.queue_id).collect();
        let marks: Vec<_> = peeks.iter().map(|peek| peek.mark).collect();
        let found = answer(hsc::peek(client, &ids, &marks)).await?;
        self.controller.watch_event(WatchEvent::Peeked { peeks, found: &found, sent_at });
        Ok(())
    }

    async fn notified(
        &self,
        client: &Session,
        bells: &mut Bells,
        heard: &Heard,
    ) -> Result<(), String> {
        if heard.channel.starts_with("tuskline_executor_") {
            self.beat_now.notify_one();
            return Ok(());
        }
        let bell = heard.channel.strip_prefix(CHANNEL).and_then(|bell| bell.parse().ok());
        let (Some(bell), Ok(queue_id)) = (bell, heard.payload.parse()) else {
            self.controller.watch_event(WatchEvent::AllMayHaveTasks);
            let held: Vec<_> = bells.held.drain().collect();
            return self.unwatch(client, &held).await;
        };
        let holder = bells.holder(bell);
        let called = WatchEvent::Called { bell, queue_id, holder };
        let needs_bell = self.controller.watch_event(called);
        if holder == Holder::We && !needs_bell {
            return self.give_up(client, bells, &[bell]).await;
        }
        bells.standby.called(bell, needs_bell, Instant::now());
        Ok(())
    }

    /// True: one of our queues sleeps under its lock.
    fn bell_answered(&self, bell: i32, said: Watched) -> bool {
        self.controller.watch_event(WatchEvent::BellAnswered { bell, said })
    }

    async fn act_on(
        &mut self,
        client: &Session,
        bells: &mut Bells,
        first: WatchRequest,
    ) -> Result<(), String> {
        let (mut watch, mut give_up) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                // It sleeps under the lock for its bell that another queue of ours has brought.
                WatchRequest::Watch(bell) if bells.held.contains(&bell) => {
                    if !self.bell_answered(bell, Watched::Held) {
                        give_up.push(bell);
                    }
                }
                WatchRequest::Watch(bell) => watch.push(bell),
                WatchRequest::Unwatch(bell) => give_up.push(bell),
            }
            next = self.requests.try_recv().ok();
        }
        self.give_up(client, bells, &give_up).await?;
        self.watch(client, bells, &watch).await
    }

    /// Asks for bells, and peeks at the queues that sleep under one that is kept for another queue, perhaps.
    async fn watch(&self, client: &Session, bells: &mut Bells, ask: &[i32]) -> Result<(), String> {
        let ask: Vec<_> = ask.iter().copied().collect::<HashSet<_>>().into_iter().collect();
        if ask.is_empty() {
            return Ok(());
        }
        let (mut refused, mut shared) = (Vec::new(), Vec::new());
        for (bell, said) in ask.iter().copied().zip(answer(hsc::watch(client, &ask)).await?) {
            match said {
                Watched::Taken | Watched::Shared => {
                    bells.standby.taken(bell, said == Watched::Shared, Instant::now());
                }
                Watched::Held | Watched::Busy => bells.standby.leave(bell),
            }
            if said == Watched::Shared {
                shared.push(bell);
            }
            if self.bell_answered(bell, said) {
                bells.held.insert(bell);
            } else if said == Watched::Held {
                refused.push(bell);
            }
        }
        self.unwatch(client, &refused).await?;
        // Such a bell may be kept for another queue, or have been free for a while since we last asked.
        let now = Instant::now();
        let peeks = self.controller.peeks(Some(&shared), now);
        if peeks.is_empty() {
            return Ok(());
        }
        self.peek_at(client, &peeks, now).await
    }

    /// Gives up bells under which queues may sleep: these wake first.
    async fn give_up(
        &self,
        client: &Session,
        bells: &mut Bells,
        give_up: &[i32],
    ) -> Result<(), String> {
        let held: Vec<_> = give_up.iter().filter_map(|bell| bells.held.take(bell)).collect();
        for bell in &held {
            self.controller.watch_event(WatchEvent::BellGivenUp(*bell));
        }
        self.unwatch(client, &held).await
    }

    async fn unwatch(&self, client: &Session, bells: &[i32]) -> Result<(), String> {
        if bells.is_empty() {
            return Ok(());
        }
        answer(hsc::unwatch(client, bells)).await
    }
}

/// The state of the bells of this connection's queues.
#[derive(Debug, Default)]
struct Bells {
    /// Their locks are ours.
    held: HashSet<i32>,
    standby: Standby,
}

impl Bells {
    fn holder(&self, bell: i32) -> Holder {
        if self.held.contains(&bell) {
            Holder::We
        } else if self.standby.contains(bell) {
            Holder::Another
        } else {
            Holder::Unknown
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Begin of a bell's channel. The payload is the queue.
const CHANNEL: &str = "tuskline_bell_";

async fn answer<T>(
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, String> {
    in_time(ANSWER_LIMIT, call).await.map_err(|error| error.to_string())
}
