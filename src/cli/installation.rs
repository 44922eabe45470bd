//! `adopt`: gives an installation its name; and names a database that `migrate` has made.

use anyhow::Result;
use clap::Args;
use serde_json::json;
use tokio_postgres::types::Type;
use tuskline_sdk::Address;

use super::failure::Failed;
use super::global::Global;
use super::{database, output};
use crate::config::DEFAULT_INSTALLATION;
use crate::session::{Deadlines, Session};
use crate::store::installation::{self, Installation};
use crate::store::rows::{Parameters, value};

/// Arguments of `adopt`.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The new name.
    #[arg(long = "as", value_name = "NAME")]
    name: String,
    /// Pause every lambda, so that nothing runs before you open the gates.
    #[arg(long)]
    hold: bool,
    /// Why; shown by each gate and in the audit.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub async fn adopt(global: &Global, args: AdoptArgs) -> Result<()> {
    let address = database::find_given(global)?;
    let session = Session::open(&address, "command", Deadlines::USUAL).await?;
    let with: &Parameters<'_> =
        &[(&args.name, Type::TEXT), (&args.hold, Type::BOOL), (&args.reason, Type::TEXT)];
    let old: String = value(session.client(), "select tuskline.adopt($1, $2, $3)", with).await?;
    let held = match args.hold {
        true => "\nevery lambda is paused; `tuskline gate list` shows the gates",
        false => "",
    };
    let name = &args.name;
    let said = format!(
        "installation {name}, was {old}; set TUSKLINE_INSTALLATION={name} for its workers and servers{held}"
    );
    output::answer(global, &json!({"installation": name, "was": old, "held": args.hold}), &said)
}

/// Names a database that has no name yet, or is `name` already. What it is then.
pub async fn name(address: &Address, name: Option<&str>) -> Result<Installation> {
    let session = Session::open(address, "migrate", Deadlines::USUAL).await?;
    let has = installation::of(session.client()).await?.unwrap_or_default();
    match name {
        Some(name) if has.name == DEFAULT_INSTALLATION && name != has.name => {
            let sql = "select tuskline.adopt($1)";
            session.client().query_typed_one(sql, &[(&name, Type::TEXT)]).await?;
            Ok(Installation { name: name.to_owned(), ..has })
        }
        Some(name) if name != has.name => Err(Failed {
            what: format!("this database is installation {}, not {name}", has.name),
            hint: Some(format!(
                "is it the right database? `tuskline adopt --as {name}` renames it"
            )),
        }
        .into()),
        _ => Ok(has),
    }
}
