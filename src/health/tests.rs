use super::*;

fn conversation() -> Conversation {
    Conversation::new(HasRequest::default(), CancellationToken::new())
}

/// Whether the connection lives on.
async fn lives(conversation: &Conversation) -> bool {
    tokio::select! {
        biased;
        () = conversation.is_over() => false,
        () = tokio::task::yield_now() => true,
    }
}

#[tokio::test]
async fn a_connection_lives_longer_for_an_answer_that_takes_longer() {
    let one = conversation();
    assert!(lives(&one).await);
    one.until.send_replace(Instant::now());
    let over = timeout(Duration::from_secs(20), one.is_over());
    assert!(over.await.is_ok());
    one.prolong(Duration::from_secs(3_600));
    assert!(lives(&one).await);
    // A wait for the end hears of a change.
    let ended = async {
        tokio::task::yield_now().await;
        one.until.send_replace(Instant::now());
    };
    let over = timeout(Duration::from_secs(20), one.is_over());
    assert!(tokio::join!(over, ended).0.is_ok());
}
