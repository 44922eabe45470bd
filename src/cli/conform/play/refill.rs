//! The step that shows whether a free slot is filled while the other slots are taken.

use std::time::Instant;

use anyhow::Result;

use super::Play;
use crate::cli::conform::subject::LOOK;

impl Play<'_> {
    /// Ends tasks in a mixed order. Each time as many must have begun as there are slots, and as have ended.
    pub(super) async fn go_one_by_one(&mut self, name: &str) -> Result<Option<String>> {
        let ids = self.ids([name])?;
        let deadline = Instant::now() + self.program.patience;
        let joined = loop {
            self.subject.look()?;
            match self.subject.wire.joined().pop() {
                Some(joined) => break joined,
                None if Instant::now() > deadline => {
                    return Ok(Some("an executor; none has joined".to_owned()));
                }
                None => tokio::time::sleep(LOOK).await,
            }
        };
        let slots = joined.slots.get("hold").copied().unwrap_or(1);
        let mut gone: Vec<i64> = Vec::new();
        loop {
            let wanted = ids.len().min(slots + gone.len());
            let deadline = Instant::now() + self.program.patience;
            let begun = loop {
                let begun: Vec<i64> =
                    ids.iter().copied().filter(|id| !self.begun(*id).is_empty()).collect();
                if begun.len() >= wanted {
                    break begun;
                }
                if Instant::now() > deadline {
                    self.subject.look()?;
                    let (seen, gone) = (begun.len(), gone.len());
                    return Ok(Some(format!(
                        "{wanted} tasks begun, {slots} slots and {gone} ended; {seen} have begun"
                    )));
                }
                tokio::time::sleep(LOOK).await;
            };
            let mut held: Vec<i64> = begun.into_iter().filter(|id| !gone.contains(id)).collect();
            let Some(next) =
                (!held.is_empty()).then(|| held.swap_remove(fastrand::usize(..held.len())))
            else {
                return Ok(None);
            };
            self.go(next)?;
            gone.push(next);
        }
    }
}
