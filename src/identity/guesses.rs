//! Wrong tokens are slowed down.
//!
//! Promises: at most [`GUESSES`] wrong tokens a second are looked at, and a token that was right before
//! passes at once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{Refusal, hash};

/// Wrong tokens that are looked at in a second.
const GUESSES: u32 = 5;
/// Wrong tokens that wait for their answer. More are not looked at.
const WAITING: usize = 10;

/// Slows guesses down.
#[derive(Debug)]
pub struct Guesses {
    /// Hashes of tokens that were right.
    known: Mutex<HashSet<[u8; 32]>>,
    waiting: Semaphore,
    turn: tokio::sync::Mutex<()>,
}

impl Default for Guesses {
    fn default() -> Self {
        let (known, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { known, waiting: Semaphore::new(WAITING), turn }
    }
}

impl Guesses {
    /// Looks a token up. A wrong one waits for its turn.
    ///
    /// # Errors
    /// The refusal of the look-up, or too many guesses.
    pub async fn check<T>(
        &self,
        token: &str,
        look_up: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let hash = hash(token);
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&hash) {
            return look_up();
        }
        let _place = self.waiting.try_acquire().map_err(|_| Refusal::TooMany)?;
        match look_up() {
            Err(Refusal::SignIn) => {
                let _turn = self.turn.lock().await;
                sleep(Duration::from_secs(1) / GUESSES).await;
                Err(Refusal::SignIn)
            }
            // A token is known by its hash, which the file has, too.
            Ok(found) => {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(hash);
                Ok(found)
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wrong_tokens_are_slowed_down_and_a_known_one_passes() {
        let guesses = Guesses::default();
        let wrong = || Err::<u8, _>(Refusal::SignIn);
        assert_eq!(guesses.check("right", || Ok(7)).await, Ok(7));
        let all = (0..WAITING + 5).map(|at| {
            let guesses = &guesses;
            async move { guesses.check(&format!("wrong {at}"), wrong).await }
        });
        // Polled after the guesses, which wait then.
        let during = async {
            (guesses.check("right", || Ok(7)).await, guesses.check("new", || Ok(7)).await)
        };
        let (said, during) = tokio::join!(futures_util::future::join_all(all), during);
        let count =
            |refusal: Refusal| said.iter().filter(|one| **one == Err(refusal.clone())).count();
        assert_eq!((count(Refusal::SignIn), count(Refusal::TooMany)), (WAITING, 5));
        assert_eq!(during, (Ok(7), Err(Refusal::TooMany)));
        assert_eq!(guesses.check("new", || Ok(7)).await, Ok(7));
    }
}
