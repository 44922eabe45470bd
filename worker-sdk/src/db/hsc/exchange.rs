//! exchange: the results of finished attempts and the next tasks, in one call.

mod statement;

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{Attempt, Failed, LeaseId, Result, ResultStatus, Verdict, columns, numbers};
use crate::db::connect::Session;
use crate::db::json::{JsonOwned, JsonText};
use crate::db::low_water_mark::{Around, Asked};

/// The result of one attempt, ready to be sent.
#[derive(Debug)]
pub(crate) struct AttemptResult {
    pub attempt: Attempt,
    /// `None`: a plain success. Else an element of p_notes of `set_results`, in JSON.
    pub note: Option<String>,
    pub status: ResultStatus,
    pub failed: Option<Failed>,
    /// The caller's number of its lambda and priority.
    pub counts: usize,
    /// How long the attempt ran.
    pub took: Duration,
}

/// The request of one exchange.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub results: &'a [AttemptResult],
    /// Leases under which nothing is left once these results are recorded.
    pub ended_leases: &'a [LeaseId],
    pub claim: Option<&'a Claim>,
}

impl Request<'_> {
    /// Nothing to record and nothing to claim.
    pub(crate) fn is_empty(&self) -> bool {
        self.results.is_empty() && self.ended_leases.is_empty() && self.claim.is_none()
    }
}

/// The tasks that one exchange asks for.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    pub lambdas: Vec<LambdaClaim>,
    /// Most bytes of payloads; one task is claimed also if it is larger.
    pub max_bytes: usize,
}

/// The part of a claim that one lambda has.
#[derive(Debug)]
pub(crate) struct LambdaClaim {
    /// The caller's index of the lambda.
    pub lambda: usize,
    /// Most tasks from its queues together.
    pub budget: usize,
    /// In the order in which they are visited.
    pub queues: Vec<QueueClaim>,
}

/// The part of a claim that one queue has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueClaim {
    /// The caller's index of the queue.
    pub queue: usize,
    pub queue_id: i32,
    /// The place in the queue where the claim begins.
    pub asked: Asked<i64>,
    /// Most tasks from this queue; none: the rest of the budget.
    pub bound: Option<usize>,
}

impl Claim {
    /// Its queues in the order in which they are visited: the reply counts them so.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueClaim> {
        self.lambdas.iter().flat_map(|lambda| &lambda.queues)
    }

    /// Tasks asked for.
    pub(crate) fn budget(&self) -> usize {
        self.lambdas.iter().map(|lambda| lambda.budget).sum()
    }
}

/// The answer to one exchange.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The database counts this worker as alive.
    pub alive: bool,
    pub verdicts: Verdicts,
    /// None: nothing was asked for, or the claim did not come to look.
    pub claimed: Option<Claimed>,
    /// It was committed here, but perhaps not on the synchronous standby.
    pub uncertain: bool,
}

/// The verdicts on the results of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Tasks whose attempts are not ours any more.
    pub refused: Vec<i64>,
    /// Tasks whose rows another session has locked.
    pub locked: Vec<i64>,
}

impl Verdicts {
    pub(crate) fn on(&self, task: i64) -> Verdict {
        match () {
            () if self.locked.contains(&task) => Verdict::Locked,
            () if self.refused.contains(&task) => Verdict::Refused,
            () => Verdict::Done,
        }
    }
}

/// The answer of a claim.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// None: no task.
    pub lease: Option<LeaseId>,
    pub tasks: Vec<ClaimedTask>,
    /// As many as the claim has queues, in that order.
    pub queues: Vec<QueueFound>,
    /// The queue, counted from 0, with which the bytes were used up. The queues behind it were not visited.
    pub cut_at: Option<usize>,
    pub around: Around,
}

impl Claimed {
    /// The longest time that a task of a queue had been due.
    pub(crate) fn longest_wait(&self, queue: usize) -> Duration {
        let of_it = self.tasks.iter().filter(|task| task.queue == queue);
        of_it.map(|task| task.waited).max().unwrap_or_default()
    }
}

/// The answer of a claim for one queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueFound {
    /// Rows taken out of the queue; none: the budget was used up before.
    pub popped: Option<usize>,
    /// Numbers of the first and the last of them.
    pub first_seq: Option<i64>,
    pub last_seq: Option<i64>,
}

/// One claimed task as it came.
#[derive(Debug)]
pub(crate) struct ClaimedTask {
    pub id: i64,
    /// Its queue, counted from 0 in the order of the claim.
    pub queue: usize,
    pub attempt: i16,
    pub crashes: i16,
    /// It was claimed before.
    pub claimed_before: bool,
    /// Time since it was due. If it was claimed before: time since it was queued again.
    pub waited: Duration,
    pub collection: Option<String>,
    pub payload: Option<JsonOwned>,
    pub traceparent: Option<String>,
}

const EXCHANGE_TYPES: [Type; 11] = [
    Type::INT8,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::JSON,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::INT4_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8,
];

/// A session with `exchange` prepared on it, unless a transaction pooler stands between.
#[derive(Debug)]
pub(crate) struct ExchangeSession {
    session: Session,
    sql: &'static str,
    prepared: Option<tokio_postgres::Statement>,
}

impl ExchangeSession {
    /// `functions`: the function set of the database, or an earlier one.
    pub(crate) async fn on(session: Session, pooled: bool, functions: i32) -> Result<Self> {
        let sql = statement::of(functions);
        let prepared = match pooled {
            false => Some(session.prepare_typed(sql, &EXCHANGE_TYPES).await?),
            true => None,
        };
        Ok(Self { session, sql, prepared })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    pub(crate) async fn exchange(&self, executor: i64, request: &Request<'_>) -> Result<Reply> {
        let plain = request.results.iter().filter(|one| one.note.is_none());
        let (tasks, fences) = columns(plain.map(|one| one.attempt));
        let notes = notes(request.results);
        let ended = numbers(request.ended_leases);
        let claim = request.claim.map(ClaimColumns::of).unwrap_or_default();
        let values: [&(dyn ToSql + Sync); 11] = [
            &executor,
            &tasks,
            &fences,
            &notes.as_deref().map(JsonText),
            &(!ended.is_empty()).then_some(ended),
            &claim.queues,
            &claim.marks,
            &claim.groups,
            &claim.budgets,
            &claim.bounds.iter().any(Option::is_some).then_some(&claim.bounds),
            &claim.max_bytes,
        ];
        let uncertain_before = self.session.uncertain_commits();
        let rows = match &self.prepared {
            Some(statement) => self.session.query(statement, &values).await?,
            None => {
                let typed: Vec<_> = values.into_iter().zip(EXCHANGE_TYPES).collect();
                self.session.query_typed(self.sql, &typed).await?
            }
        };
        let uncertain = self.session.uncertain_commits() != uncertain_before;
        Ok(Reply { uncertain, ..Reply::read(&rows[0]) })
    }
}

/// The results that are no plain success, as a JSON array.
fn notes(results: &[AttemptResult]) -> Option<String> {
    let mut array = String::new();
    for note in results.iter().filter_map(|one| one.note.as_deref()) {
        array.push(if array.is_empty() { '[' } else { ',' });
        array.push_str(note);
    }
    (!array.is_empty()).then(|| array + "]")
}

/// A claim as parallel arrays. A group is a lambda, counted from 1.
#[derive(Debug, Default)]
struct ClaimColumns {
    queues: Vec<i32>,
    marks: Vec<i64>,
    groups: Vec<i16>,
    budgets: Vec<i32>,
    bounds: Vec<Option<i32>>,
    max_bytes: i64,
}

impl ClaimColumns {
    fn of(claim: &Claim) -> Self {
        let max_bytes = i64::try_from(claim.max_bytes).unwrap_or(i64::MAX);
        let mut columns = Self { max_bytes, ..Self::default() };
        for lambda in &claim.lambdas {
            columns.budgets.push(i32::try_from(lambda.budget).unwrap_or(i32::MAX));
            let group = i16::try_from(columns.budgets.len()).unwrap_or(i16::MAX);
            for queue in &lambda.queues {
                columns.queues.push(queue.queue_id);
                columns.marks.push(queue.asked.mark);
                columns.groups.push(group);
                columns.bounds.push(queue.bound.and_then(|bound| i32::try_from(bound).ok()));
            }
        }
        columns
    }
}

impl Reply {
    fn read(row: &Row) -> Self {
        let looked = row.get::<_, Option<i64>>(6);
        Self {
            alive: row.get(1),
            verdicts: Verdicts {
                refused: row.get(0),
                locked: row.get::<_, Option<_>>(15).unwrap_or_default(),
            },
            claimed: looked.map(|oldest_writer_xid| Claimed {
                lease: row.get::<_, Option<i64>>(2).map(LeaseId),
                tasks: read_tasks(row),
                queues: read_queues(row),
                cut_at: row.get::<_, Option<i32>>(16).and_then(|at| usize::try_from(at - 1).ok()),
                around: Around { oldest_writer_xid, xid: row.get(7) },
            }),
            uncertain: false,
        }
    }
}

fn read_queues(row: &Row) -> Vec<QueueFound> {
    let popped: Vec<Option<i32>> = row.get::<_, Option<_>>(3).unwrap_or_default();
    let first: Vec<Option<i64>> = row.get::<_, Option<_>>(4).unwrap_or_default();
    let last: Vec<Option<i64>> = row.get::<_, Option<_>>(5).unwrap_or_default();
    let found = |((popped, first_seq), last_seq): ((Option<i32>, _), _)| QueueFound {
        popped: popped.map(|rows| usize::try_from(rows).unwrap_or_default()),
        first_seq,
        last_seq,
    };
    popped.into_iter().zip(first).zip(last).map(found).collect()
}

fn read_tasks(row: &Row) -> Vec<ClaimedTask> {
    let Some(ids) = row.get::<_, Option<Vec<i64>>>(8) else { return Vec::new() };
    let queues: Vec<i16> = row.get(9);
    let attempts: Vec<i16> = row.get(10);
    let crashes: Vec<i16> = row.get(11);
    let queued_ms: Vec<i32> = row.get(12);
    let mut collections: Vec<Option<String>> = row.get(13);
    let mut payloads: Vec<Option<JsonOwned>> = row.get(14);
    let mut traces: Vec<Option<String>> = row.get(17);
    let claimed_before: Vec<bool> = row.get(18);
    ids.into_iter()
        .enumerate()
        .map(|(at, id)| ClaimedTask {
            id,
            queue: usize::try_from(queues[at] - 1).unwrap_or_default(),
            attempt: attempts[at],
            crashes: crashes[at],
            claimed_before: claimed_before[at],
            waited: Duration::from_millis(queued_ms[at].unsigned_abs().into()),
            collection: collections[at].take(),
            payload: payloads[at].take(),
            traceparent: traces[at].take(),
        })
        .collect()
}
