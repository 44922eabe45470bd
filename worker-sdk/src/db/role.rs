//! The role of the caller's choice, in place of that of its login.
//!
//! Promises: a call acts as the role or is refused. Behind a transaction pooler no other client of the pooler gets
//! the role. Must never: put the name of a role into the text of a statement.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

/// Sets a role until the end of the transaction; `none` is the login.
pub(crate) const SET_ROLE: &str = "select set_config('role', $1, true)";

/// Makes a call of one statement in a transaction of its own that sets the role first. All of it is sent at once,
/// so it takes no further round trip.
pub(crate) async fn in_role<T>(
    client: &Client,
    role: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let role = [(&role as _, Type::TEXT)];
    let (begun, set, answer, ended) = tokio::join!(
        biased; // In this order they are sent.
        client.batch_execute("begin"),
        client.query_typed(SET_ROLE, &role),
        call,
        client.batch_execute("commit"),
    );
    begun?;
    set?;
    let answer = answer?;
    ended?;
    Ok(answer)
}
