//! The wake line: the one connection that LISTENs, holds the locks of sleeping queues and looks at them
//! now and then.
//!
//! Wakes only the sleeping: a NOTIFY takes a database-wide lock at commit (60-86 % of the insert rate
//! when every insert sends one), so producers send one only while this connection holds the queue's
//! lock. Everything it says is a hint; without it tasks start at the safety poll, which is a look of this
//! line's, or a lane's claim when the line gives no answer.

mod standby;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_postgres::{Client, Config};

use crate::connect::{Backoff, Channels, Session, Trouble, connect_listening};
use crate::connections;
use crate::controller::{Controller, WakeRequest};
use crate::database::Database;
use crate::hsc;
use standby::Standby;

/// The line proves itself alive at least this often: a network that swallows packets says nothing by
/// itself.
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// A look comes this part of the safety poll after the last, so that no lane has to claim.
const LOOK_SHARE: f64 = 0.95;
/// Longest wait for any answer on the line.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for the echo of a notification that the server has acknowledged. A worker starts later by this
/// behind a pooler, and whoever died before it waits for that.
pub(crate) const ECHO_GRACE: Duration = Duration::from_millis(250);

pub(crate) struct WakeLine {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    pub requests: mpsc::UnboundedReceiver<WakeRequest>,
    /// Tells the heartbeat that somebody asked to cancel one of our tasks.
    pub hurry: Arc<Notify>,
}

impl WakeLine {
    /// Runs until dropped. Every reconnect listens first and looks at every queue after.
    pub(crate) async fn run(mut self) {
        if self.controller.pooled {
            return std::future::pending().await;
        }
        let mut backoff = Backoff::default();
        loop {
            let mut shortage = false;
            match self.open().await {
                Ok((client, channels)) => {
                    backoff.reset();
                    // What was asked of the last line does not matter to this one.
                    while self.requests.try_recv().is_ok() {}
                    self.controller.woken(None);
                    let trouble = self.serve(&client, channels).await;
                    self.controller.unwatched();
                    // A test that keeps a history of the worker reads this text from the trace.
                    tracing::warn!(%trouble, "wake line lost; polling until it is back");
                }
                Err(trouble) => {
                    shortage = trouble.shortage;
                    tracing::warn!(%trouble, "wake line cannot connect; polling until it can");
                }
            }
            while let Ok(request) = self.requests.try_recv() {
                if let WakeRequest::Doze(queue) = request {
                    self.controller.dozed(queue, "busy");
                }
            }
            let nap = if shortage { connections::rest() } else { backoff.next() };
            tokio::time::sleep(nap).await;
        }
    }

    async fn open(&self) -> Result<(Session, Channels), Trouble> {
        let listen: String = std::iter::once("listen tuskline_queue;".to_owned())
            .chain(
                self.controller.queues.iter().map(|q| format!("listen {};", channel(q.queue_id))),
            )
            .chain(std::iter::once(format!("listen tuskline_executor_{};", self.db.executor)))
            .collect();
        self.db.opener.connections.until_heard().await;
        let open = async {
            let config = &self.db.opener.config;
            let (client, channels) = connect_listening(config, ANSWER_LIMIT).await?;
            client.batch_execute(&listen).await?;
            Ok::<_, tokio_postgres::Error>((client, channels))
        };
        match timeout(ANSWER_LIMIT, open).await {
            Ok(opened) => opened.map_err(Trouble::from),
            Err(_) => Err("no answer in time".into()),
        }
    }

    async fn serve(&mut self, client: &Client, mut channels: Channels) -> String {
        let mut locks = Locks::default();
        let period = self.controller.config.safety_poll.mul_f64(LOOK_SHARE).min(PROBE_PERIOD);
        let mut looks = tokio::time::interval(period);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looked_at = Instant::now();
        loop {
            let ask_at = locks.standby.next_at();
            let answered = tokio::select! {
                channel = channels.recv() => match channel {
                    Some(channel) => self.notified(client, &mut locks, &channel).await,
                    None => return "connection closed".into(),
                },
                Some(request) = self.requests.recv() => self.heed(client, &mut locks, request).await,
                () = sleep_until(ask_at) => {
                    let due = locks.standby.due(Instant::now());
                    self.doze(client, &mut locks, &due).await
                }
                _ = looks.tick() => self.look(client, &mut looked_at).await,
            };
            if let Err(trouble) = answered {
                return trouble;
            }
        }
    }

    /// The safety poll of all that sleeps; of nothing, if the line has been silent for long.
    async fn look(&self, client: &Client, looked_at: &mut Instant) -> Result<(), String> {
        let now = Instant::now();
        let looks = self.controller.to_look_at(now);
        if looks.is_empty() && now < *looked_at + PROBE_PERIOD {
            return Ok(());
        }
        *looked_at = now;
        let ids: Vec<_> = looks.iter().map(|look| look.queue_id).collect();
        let marks: Vec<_> = looks.iter().map(|look| look.mark).collect();
        let found = answer(hsc::look(client, &ids, &marks)).await?;
        self.controller.looked(&looks, &found, now);
        Ok(())
    }

    async fn notified(&self, client: &Client, locks: &mut Locks, name: &str) -> Result<(), String> {
        if name.starts_with("tuskline_executor_") {
            self.hurry.notify_one();
            return Ok(());
        }
        let Some(index) = self.controller.queues.iter().position(|q| channel(q.queue_id) == name)
        else {
            self.controller.woken(None);
            let roused: Vec<_> = locks.held.drain().collect();
            return self.rouse(client, &roused).await;
        };
        if locks.held.contains(&index) {
            if !self.controller.called(index) {
                locks.held.remove(&index);
                return self.rouse(client, &[index]).await;
            }
            return Ok(());
        }
        self.controller.overheard(index);
        if !locks.standby.called(index, Instant::now()) || self.controller.distrusts(index) {
            self.controller.woken(Some(index));
        }
        Ok(())
    }

    async fn heed(
        &mut self,
        client: &Client,
        locks: &mut Locks,
        first: WakeRequest,
    ) -> Result<(), String> {
        let (mut doze, mut rouse) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                WakeRequest::Doze(queue) if locks.held.contains(&queue) => {
                    self.controller.dozed(queue, "held");
                }
                WakeRequest::Doze(queue) => doze.push(queue),
                WakeRequest::Rouse(queue) => rouse.extend(locks.held.take(&queue)),
            }
            next = self.requests.try_recv().ok();
        }
        self.rouse(client, &rouse).await?;
        self.doze(client, locks, &doze).await
    }

    async fn doze(
        &self,
        client: &Client,
        locks: &mut Locks,
        queues: &[usize],
    ) -> Result<(), String> {
        if queues.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> =
            queues.iter().map(|queue| self.controller.queues[*queue].queue_id).collect();
        for (queue, said) in queues.iter().zip(answer(hsc::doze(client, &ids)).await?) {
            match said.as_str() {
                "taken" => locks.standby.taken(*queue, Instant::now()),
                _ => locks.standby.leave(*queue),
            }
            if said == "held" {
                locks.held.insert(*queue);
            }
            self.controller.dozed(*queue, &said);
        }
        Ok(())
    }

    async fn rouse(&self, client: &Client, queues: &[usize]) -> Result<(), String> {
        if queues.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> =
            queues.iter().map(|queue| self.controller.queues[*queue].queue_id).collect();
        answer(hsc::rouse(client, &ids)).await
    }
}

/// What this line knows of the queues' locks.
#[derive(Debug, Default)]
struct Locks {
    /// Ours: indices of queues.
    held: HashSet<usize>,
    standby: Standby,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn channel(queue_id: i32) -> String {
    format!("tuskline_queue_{queue_id}")
}

async fn answer<T>(
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, String> {
    match timeout(ANSWER_LIMIT, call).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in time".into()),
    }
}

/// True when a transaction pooler stands between: a session that listens does not hear itself. A server sends a
/// session what it told itself before it ends the statement, so there is next to nothing to wait for.
/// Answers with the connection as well: it costs no second one.
pub(crate) async fn is_pooled(config: &Config) -> Result<(bool, Session), tokio_postgres::Error> {
    let (session, mut channels) = connect_listening(config, ANSWER_LIMIT).await?;
    let echo = format!("tuskline_echo_{}_{}", std::process::id(), fastrand::u32(..));
    session.batch_execute(&format!("listen {echo}")).await?;
    session.batch_execute(&format!("notify {echo}")).await?;
    let heard = timeout(ECHO_GRACE, channels.recv()).await;
    let pooled = !matches!(heard, Ok(Some(name)) if name == echo);
    session.batch_execute(&format!("unlisten {echo}")).await?;
    Ok((pooled, session))
}
