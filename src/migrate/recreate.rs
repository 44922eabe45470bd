//! Functions that the server does not replace in place: `create or replace` changes neither what a function returns
//! nor the names of its parameters.
//!
//! Only such a function is dropped. A session that has looked up a function and not yet called it when the drop is
//! committed is refused its call, so the calls of all other functions must not meet a drop.

use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;

use super::sources::Source;
use super::statements::{function, split};
use super::{Error, Functions, apply};

/// Applies a file. To recreate functions, those that cannot be replaced are dropped before.
pub(super) async fn renew_file(
    transaction: &Transaction<'_>,
    (name, text): Source,
    way: Functions,
) -> Result<(), Error> {
    if way != Functions::Recreated {
        return apply(transaction, (name, text)).await;
    }
    let of_file = |source| Error::File { name, source };
    if replaced(transaction, text).await.map_err(of_file)? {
        return Ok(());
    }
    for statement in split(text) {
        if !replaced(transaction, statement).await.map_err(of_file)? {
            drop_former(transaction, statement).await.map_err(of_file)?;
            apply(transaction, (name, statement)).await?;
        }
    }
    Ok(())
}

/// False: the server refuses to replace a function, and nothing of the text was done.
async fn replaced(
    transaction: &Transaction<'_>,
    text: &str,
) -> Result<bool, tokio_postgres::Error> {
    transaction.batch_execute("savepoint replaced").await?;
    match transaction.batch_execute(text).await {
        Ok(()) => {
            transaction.batch_execute("release savepoint replaced").await?;
            Ok(true)
        }
        Err(error) if error.code() == Some(&SqlState::INVALID_FUNCTION_DEFINITION) => {
            transaction
                .batch_execute("rollback to savepoint replaced; release savepoint replaced")
                .await?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Drops what has the name of the function that a statement creates, unless an object depends on it. A call
/// creates the functions of the segments and queues.
async fn drop_former(
    transaction: &Transaction<'_>,
    statement: &str,
) -> Result<(), tokio_postgres::Error> {
    // Of an age above 0: not written in this transaction.
    let former = "select p.oid::regprocedure::text from pg_proc p \
        where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) \
          and case $1 when '' then p.proname ~ '^(pop|(pop|take|end)_[0-9]+)$' \
              else p.pronamespace::regnamespace || '.' || p.proname = $1 end \
          and age(p.xmin) > 0 and not exists (select from pg_depend d \
            where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid)";
    for row in transaction.query(former, &[&function(statement)]).await? {
        let drop = format!("drop routine {}", row.get::<_, &str>(0));
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}
