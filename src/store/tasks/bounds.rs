//! The ids between which a list of tasks reads.

use tokio_postgres::{Client, Error};

use crate::store::rows;

/// Between which ids to read, of tasks that were due at once and of delayed ones.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Before these. None: at the newest.
    pub(super) before: [Option<i64>; 2],
    /// Not below these.
    pub(super) floor: [i64; 2],
    /// The first id of delayed tasks.
    pub(super) first_later: i64,
}

impl Bounds {
    /// None yet.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn of(client: &Client) -> Result<Self, Error> {
        let sql = "select seqmin from pg_sequence where seqrelid = 'tuskline.future_seq'::regclass";
        let first_later = rows::value(client, sql, &[]).await?;
        Ok(Self { before: [None; 2], floor: [0, first_later], first_later })
    }

    /// Before these ids. No id of a kind: at the newest one.
    #[must_use]
    pub fn before(self, ids: &[i64]) -> Self {
        let lowest =
            |is_later| ids.iter().copied().filter(|id| (*id >= self.first_later) == is_later).min();
        Self { before: [false, true].map(lowest), ..self }
    }

    /// Not below these ids.
    #[must_use]
    pub fn not_below(mut self, ids: &[i64]) -> Self {
        for id in ids {
            let floor = &mut self.floor[usize::from(*id >= self.first_later)];
            *floor = (*floor).max(*id);
        }
        self
    }

    /// The lowest ids that were read.
    pub fn ids(&self) -> Vec<i64> {
        self.before.iter().copied().flatten().collect()
    }
}
