//! Acts: `GET` shows what one would do, `POST` to the same address does it.
//!
//! `verbs` is the table of acts, `given` reads the address, `reading` asks the database, `token`
//! of the pages binds a confirmation to its preview, and `page` shows it.
//!
//! Promises: nothing changes without a confirmation of what was shown; the database checks the role,
//! and what it refuses here it refuses by SQL. Must never: act on a GET.

mod fields;
mod given;
mod page;
mod reading;
mod verbs;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;
use tokio_postgres::Client;

use super::asked::Asked;
use super::parts::{Frame, encoded};
use super::reading::{Access, Moment, ReadError};
use super::refusal::Refused;
use super::site::Site;
use super::token::{Shown, Stale};
use given::Given;
use page::{Preview, Why};
use reading::{Seen, page_of};
use verbs::ActKind;

/// Links to previews of acts on one thing: name of the act, its words.
pub fn links(frame: &Frame, acts: &[(&str, &str)], members: &[(&str, &str)]) -> Markup {
    html! {
        p .acts { @for (name, words) in acts { (link(frame, name, members, words)) } }
    }
}

/// A link to the preview of an act. Dashed: the person may only look, and the preview says why.
pub fn link(frame: &Frame, name: &str, members: &[(&str, &str)], words: &str) -> Markup {
    html! { a .act .off[!frame.may_act] href=(address(frame, name, members)) { (words) } }
}

/// An address of an act, with members of its query.
fn address(frame: &Frame, name: &str, members: &[(&str, &str)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    frame.to(&format!("act/{name}?{}", members.join("&")))
}

/// Longest reason.
const LONGEST_REASON: usize = 200;

/// The form that confirms an act.
#[derive(Debug)]
struct Sent {
    preview: String,
    reason: String,
    number: Option<i64>,
}

impl Sent {
    fn of(mut form: BTreeMap<String, String>) -> Self {
        let mut take = |name: &str| form.remove(name).unwrap_or_default();
        let is_digit = |c: &char| c.is_ascii_digit();
        let number = take("number").chars().filter(is_digit).collect::<String>();
        Self {
            preview: take("preview"),
            reason: take("reason").trim().to_owned(),
            number: number.parse().ok(),
        }
    }
}

/// The end of a confirmation.
enum Done {
    /// The answer of the function, and the page to go to.
    Acted(String, String),
    /// The preview again, with a note.
    Again(Seen, String),
    /// There is no such thing.
    Missing,
}

/// The preview of an act.
pub async fn preview(
    State(site): State<Arc<Site>>,
    asked: Asked,
    Path(name): Path<String>,
) -> Response {
    let given = match given(&name, &asked) {
        Ok(given) => given,
        Err(refused) => return asked.answer(&site, None, &refused),
    };
    let read = asked.read(&site, async |client| Seen::read(client, &given).await).await;
    match asked.found(read, given.act.of.missing()) {
        Ok((moment, seen)) => show(&site, &asked, (given, seen, &moment), None),
        Err(error) => asked.answer(&site, None, &Refused::by(&error)),
    }
}

/// Does it.
pub async fn perform(
    State(site): State<Arc<Site>>,
    asked: Asked,
    Path(name): Path<String>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    if let Err(refusal) = site.access.check_act(&asked.person, &asked.headers) {
        return asked.answer(&site, None, &Refused::of(&refusal));
    }
    let given = match given(&name, &asked) {
        Ok(given) => given,
        Err(refused) => return asked.answer(&site, None, &refused),
    };
    if let Some(missing) = given.missing() {
        return asked.answer(&site, None, &Refused::bad(&missing));
    }
    let sent = Sent::of(form);
    let person = &asked.person;
    let done = site
        .sessions
        .of(&person.role, Access::Act { person: &person.name }, async |client| {
            perform_in(client, &site, &asked, &given, &sent).await
        })
        .await;
    match done {
        Ok((_, Done::Acted(outcome, to))) => {
            site.shared.forget().await;
            match nothing_done(&outcome) {
                None => Redirect::to(&format!("{}/{to}", site.base)).into_response(),
                Some(why) => asked.answer(&site, None, &Refused::nothing(why)),
            }
        }
        Ok((moment, Done::Again(seen, note))) => {
            show(&site, &asked, (given, seen, &moment), Some((sent.reason, note)))
        }
        Ok((_, Done::Missing)) => {
            asked.answer(&site, None, &Refused::by(&ReadError::Unknown(given.act.of.missing())))
        }
        Err(error) => asked.answer(&site, None, &Refused::by(&error)),
    }
}

fn given(name: &str, asked: &Asked) -> Result<Given, Refused> {
    let act = ActKind::named(name)
        .ok_or_else(|| Refused::by(&ReadError::Unknown("there is no such act")));
    Given::of(act?, &asked.query).map_err(|why| Refused::bad(&why))
}

/// Reads again, compares with what was shown, and calls the function in the same transaction.
async fn perform_in(
    client: &Client,
    site: &Site,
    asked: &Asked,
    given: &Given,
    sent: &Sent,
) -> Result<Done, tokio_postgres::Error> {
    let Some(seen) = Seen::read(client, given).await? else { return Ok(Done::Missing) };
    let now = client.query_typed_one("select tuskline.clock()", &[]).await?.get(0);
    let shown = Shown { act: &given.sql(""), ..shown_to(asked) };
    let count = seen.number(given);
    let note = match site.key.check(&sent.preview, shown, count, now) {
        // A role without the right has no count. The function says what it lacks.
        Err(Stale::Count) if !seen.right.has() => None,
        Err(stale) => Some(stale.text().to_owned()),
        Ok(then) => wrong(given, &seen, sent, then),
    };
    if let Some(note) = note {
        return Ok(Done::Again(seen, note));
    }
    let mut arguments = given.arguments();
    if given.act.has_reason {
        arguments.insert("reason".to_owned(), sent.reason.clone().into());
    }
    let row = given.act.verb.row(client, "v::text", &Value::Object(arguments)).await?;
    let outcome: Option<String> = row.try_get(0)?;
    let outcome = outcome.unwrap_or_default();
    let to = page_of(given, &seen.rows, &outcome);
    Ok(Done::Acted(outcome, to))
}

/// The part that a confirmation lacks.
fn wrong(given: &Given, seen: &Seen, sent: &Sent, then: i64) -> Option<String> {
    let length = sent.reason.chars().count();
    if given.act.has_reason && !(1..=LONGEST_REASON).contains(&length) {
        return Some(format!("A reason of 1 to {LONGEST_REASON} characters is needed."));
    }
    let is_typed = Preview::is_typed(seen.count.as_ref(), given);
    (is_typed && sent.number != Some(then))
        .then(|| "Type the number of tasks that this page shows. Nothing has been done.".to_owned())
}

/// Why a function that succeeded has changed nothing.
fn nothing_done(outcome: &str) -> Option<&'static str> {
    match outcome {
        "false" | "unknown" => Some("it is not there any more"),
        "too_late" => Some("the task has ended"),
        "too_early" => Some("the task has not ended"),
        "succeeded" => Some("the task has succeeded"),
        _ => None,
    }
}

fn shown_to(asked: &Asked) -> Shown<'_> {
    Shown { act: "", person: &asked.person.name, role: &asked.person.role }
}

fn show(
    site: &Site,
    asked: &Asked,
    (given, seen, moment): (Given, Seen, &Moment),
    again: Option<(String, String)>,
) -> Response {
    let refusal = site.access.may_act(&asked.person).err();
    let why = match refusal {
        Some(refusal) => Some(Why { text: Refused::of(&refusal).text(), grant: None }),
        None => Why::of(&seen.right, &given, &asked.person.role),
    };
    let (sql, number) = (given.sql(""), seen.number(&given));
    let token = site.key.token(Shown { act: &sql, ..shown_to(asked) }, number, moment.now);
    let mut shown = Preview::of(given, seen, why);
    shown.preview = shown.note.is_none().then_some(token);
    if let Some((reason, note)) = again {
        shown.reason = reason;
        shown.note = Some(note);
        shown.is_again = true;
    }
    asked.answer(site, Some(moment), &shown)
}
