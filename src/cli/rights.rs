//! `grant`, `revoke` and `rights`: which roles may do what with a lambda.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tuskline_sdk::Privilege;
use tuskline_sdk::verbs::{GRANT_LAMBDA, REVOKE_LAMBDA};

use super::failure::failed;
use super::global::Global;
use super::output;
use crate::store::rows::view;

/// Arguments of `grant` and `revoke`.
#[derive(Debug, Args, Serialize)]
pub struct GrantArgs {
    /// Name of the lambda; '*' for every closed lambda.
    lambda: String,
    /// Name of the role that gets or loses them.
    #[arg(value_name = "ROLE")]
    #[serde(rename = "role")]
    // Not `role`: clap would take it for `--role`.
    grantee: String,
    /// Rights.
    #[arg(required = true, value_name = "RIGHT", value_parser = rights())]
    #[serde(rename = "privileges")]
    rights: Vec<String>,
}

/// Arguments of `rights`.
#[derive(Debug, Args)]
pub struct RightsArgs {
    /// Only those on this lambda; '*' for those on every closed lambda.
    lambda: Option<String>,
}

fn rights() -> PossibleValuesParser {
    PossibleValuesParser::new(Privilege::ALL.iter().map(|right| right.as_str()))
}

pub async fn grant(global: &Global, client: &Client, args: &GrantArgs) -> Result<()> {
    let changed: bool = GRANT_LAMBDA.call(client, &json!(args)).await?;
    let GrantArgs { lambda, grantee: role, rights } = args;
    let said = match changed {
        true => format!("granted to {role} on {lambda}: {}", rights.join(", ")),
        false => format!("nothing has changed: {role} had these rights on {lambda}"),
    };
    output::answer(global, &json!({"lambda": lambda, "role": role, "granted": changed}), &said)
}

pub async fn revoke(global: &Global, client: &Client, args: &GrantArgs) -> Result<()> {
    let GrantArgs { lambda, grantee: role, rights } = args;
    if !REVOKE_LAMBDA.call(client, &json!(args)).await? {
        return Err(failed(format!(
            "{role} was not granted such a right on {lambda}: tuskline rights"
        )));
    }
    let said = format!("revoked from {role} on {lambda}: {}", rights.join(", "));
    output::answer(global, &json!({"lambda": lambda, "role": role, "revoked": true}), &said)
}

pub async fn list(global: &Global, client: &Client, args: &RightsArgs) -> Result<()> {
    let order = "where $1::text is null or lambda = $1 order by lambda, role, privilege";
    let grants = view(client, "lambda_grants", &[], order, &[(&args.lambda, Type::TEXT)]).await?;
    let columns = "lambda, role, right: privilege, by: granted_by, note";
    output::put_list(global, grants, columns, "no right is granted", |grant| {
        if grant["role_is_gone"] == true {
            grant["note"] = "the role is gone".into();
        }
    })
}
