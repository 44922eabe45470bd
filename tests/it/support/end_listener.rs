//! A session that listens, and counts what it hears.

use std::future::poll_fn;
use std::pin::pin;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::{Db, within};

/// A listening session.
pub struct EndListener {
    /// The same session, for statements.
    pub client: Client,
    heard: UnboundedReceiver<String>,
}

impl EndListener {
    /// The channels of the notifications sent to this session since the last call. All transactions
    /// that had committed before this call are included.
    pub async fn heard(&mut self) -> Vec<String> {
        // Notifications arrive before the answer to a statement that began after their commit.
        within(self.client.batch_execute("notify tuskline_test_end")).await.unwrap();
        let mut channels = Vec::new();
        loop {
            match within(self.heard.recv()).await.expect("the session lives") {
                end if end == "tuskline_test_end" => return channels,
                channel => channels.push(channel),
            }
        }
    }
}

impl Db {
    /// A session that listens on these channels.
    pub async fn ear(&self, channels: &[&str]) -> EndListener {
        let (client, mut connection) = self.config.connect(NoTls).await.unwrap();
        let (report, heard) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(said)) =
                poll_fn(|context| pin!(&mut connection).poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = said {
                    let _ = report.send(notification.channel().to_owned());
                }
            }
        });
        for channel in channels.iter().chain(&["tuskline_test_end"]) {
            client.batch_execute(&format!("listen {channel}")).await.unwrap();
        }
        EndListener { client, heard }
    }
}
