//! The name and the cell of an installation.

use std::fmt;

use tokio_postgres::{Client, Error};

/// An installation, as people see it: `prod`, or `prod, cell 5`.
#[derive(Debug, Default)]
pub struct Installation {
    /// Its name.
    pub name: String,
    /// Its range of ids.
    pub cell: i16,
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cell {
            0 => f.write_str(&self.name),
            cell => write!(f, "{}, cell {cell}", self.name),
        }
    }
}

/// The installation of a database; none: its row is missing.
///
/// # Errors
/// The connection's or the server's.
pub async fn of(client: &Client) -> Result<Option<Installation>, Error> {
    let row = client.query_typed_opt("select name, cell from tuskline.installation", &[]).await?;
    Ok(row.map(|row| Installation { name: row.get(0), cell: row.get(1) }))
}
