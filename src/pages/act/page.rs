//! The page of an act: which, how many, what happens, how to undo it, the same as SQL, a sample, and
//! the form that does it.

use axum::http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

use super::given::{Given, identifier, literal};
use super::reading::{Count, MOST, Right, Seen, page_of};
use super::verbs::{Field, Kind, Of};
use crate::pages::parts::{Frame, Part, Show, command};
use crate::pages::table::{Column, Kind as Shown, plain};
use crate::pages::words::count;

/// Tasks above which a person types their number.
pub const TYPED_ABOVE: i64 = 1_000;

/// A preview.
#[derive(Debug, Serialize)]
pub struct Preview {
    pub act: &'static str,
    pub title: String,
    /// The same as SQL.
    pub sql: String,
    /// The thing.
    pub which: Vec<Value>,
    /// Tasks, counted now.
    pub count: Option<Count>,
    pub sample: Vec<Value>,
    /// The role may do it.
    pub may: bool,
    /// Why not.
    pub why: Option<Why>,
    /// The arguments that are missing, or why the preview is shown again.
    pub note: Option<String>,
    /// To be sent with the confirmation.
    pub preview: Option<String>,
    #[serde(skip)]
    pub given: Given,
    #[serde(skip)]
    pub reason: String,
    #[serde(skip)]
    pub is_again: bool,
}

/// Why an act is not possible, and the statement that changes it.
#[derive(Debug, Serialize)]
pub struct Why {
    pub text: String,
    pub grant: Option<String>,
}

impl Why {
    /// None: the role may act.
    pub fn of(right: &Right, given: &Given, role: &str) -> Option<Self> {
        let verb = given.act.verb.name;
        if !right.may_call {
            let group = right.groups.first();
            let groups = right.groups.join(" or ");
            return Some(match group {
                None => Self {
                    text: format!("Only the owner of the schema may call tuskline.{verb}()."),
                    grant: None,
                },
                Some(group) => Self {
                    text: format!(
                        "{role} may not call tuskline.{verb}(). Members of {groups} may:"
                    ),
                    grant: Some(format!("grant {group} to {};", identifier(role))),
                },
            });
        }
        let lambda = right.barred.as_ref()?;
        let right = given.act.rights.first().copied().unwrap_or("operate");
        Some(Self {
            text: format!(
                "{role} lacks the right {right} of {lambda}. An owner of it can grant it:"
            ),
            grant: Some(format!(
                "select tuskline.grant_lambda({}, {}, {});",
                literal(lambda),
                literal(role),
                literal(right)
            )),
        })
    }
}

impl Preview {
    /// Of what was read.
    pub fn of(given: Given, seen: Seen, why: Option<Why>) -> Self {
        let number = seen.count.as_ref().map(number);
        Self {
            act: given.act.name,
            title: given.title(number.as_deref()),
            sql: given.sql("…"),
            which: seen.rows,
            count: seen.count,
            sample: seen.sample,
            may: why.is_none(),
            why,
            note: given.missing(),
            preview: None,
            given,
            reason: String::new(),
            is_again: false,
        }
    }

    /// Whether the number of tasks is to be typed.
    pub fn is_typed(count: Option<&Count>, given: &Given) -> bool {
        given.act.is_counted() && count.is_some_and(|count| count.tasks > TYPED_ABOVE)
    }

    fn is_ready(&self) -> bool {
        self.given.missing().is_none()
    }

    fn facts(&self, frame: &Frame) -> Markup {
        let columns = self.given.act.of.columns();
        html! {
            dl .pairs {
                @if let Some(lambda) = self.given.text("lambda") {
                    div { dt { "Which" } dd {
                        "tasks of " a href=(frame.to(&page_of_lambda(lambda))) { (lambda) }
                        @for field in self.given.act.fields().filter(|field| field.name != "lambda") {
                            @if let Some(text) = self.given.text(field.name) {
                                ", " (field.name.replace('_', " ")) " " code { (text) }
                            }
                        }
                    } }
                }
                @if let Some(counted) = &self.count {
                    div { dt { "How many" } dd {
                        (number(counted))
                        @if self.given.act.of == Of::Lambda { " wait now" } @else { " counted now" }
                        @for (at, (status, tasks)) in counted.by_status.iter().enumerate() {
                            @if at == 0 { ": " } @else { ", " }
                            (count(*tasks)) " " (status)
                        }
                        @if counted.and_more { ". Counted to " (count(MOST)) "; the act is for all" }
                    } }
                }
                div { dt { "What happens" } dd { (self.given.act.happens) } }
                div { dt { "Undo" } dd { (self.given.act.undo) } }
                @if self.is_ready() {
                    div { dt { "The same as SQL" } dd { (command("same", &self.sql)) } }
                }
            }
            @if !columns.is_empty() && !self.which.is_empty() {
                (plain(frame, columns, &self.which[..self.which.len().min(100)]))
            }
        }
    }

    fn confirmation(&self, frame: &Frame, address: &str) -> Markup {
        let typed = self.count.as_ref().filter(|count| Self::is_typed(Some(count), &self.given));
        html! {
            form method="post" action=(address) {
                @if let Some(preview) = &self.preview { input type="hidden" name="preview" value=(preview); }
                @if self.given.act.has_reason && self.may {
                    p .field {
                        label for="reason" { "Reason" }
                        input #reason name="reason" required maxlength="200" autocomplete="off" value=(self.reason);
                        small { "For the audit. Others read it when they ask why." }
                    }
                }
                @if let Some(typed) = typed.filter(|_| self.may) {
                    p .field {
                        label for="number" { "Type the number of tasks" }
                        input #number name="number" required inputmode="numeric" autocomplete="off"
                            placeholder=(typed.tasks);
                        small {
                            "Asked above " (count(TYPED_ABOVE)) " tasks. If the count has changed by more \
                             than a tenth when you confirm, you see this page again."
                        }
                    }
                }
                p .field .acts {
                    @match &self.why {
                        None => button .go-on type="submit" { (self.title) },
                        Some(_) => button type="button" aria-disabled="true" aria-describedby="no-act" { (self.title) },
                    }
                    a .act href=(self.back(frame)) { "Change nothing" }
                }
            }
            @if let Some(why) = &self.why {
                p #no-act .why { (why.text) }
                @if let Some(grant) = &why.grant { (command("grant", grant)) }
            }
        }
    }

    /// Where nothing is changed.
    fn back(&self, frame: &Frame) -> String {
        let lambda = self.given.text("lambda");
        match (self.given.act.of, lambda) {
            (Of::Tasks, Some(lambda)) => frame.to(&page_of_lambda(lambda)),
            _ => frame.to(&page_of(&self.given, &self.which, "")),
        }
    }

    /// The form of the arguments. It leads to another preview.
    fn arguments(&self, frame: &Frame) -> Markup {
        let is_fixed = |field: &Field| match self.given.act.of {
            Of::Tasks => false,
            _ => {
                field.is_required
                    && field.default.is_none()
                    && field.name != "per_second"
                    && self.given.text(field.name).is_some()
            }
        };
        let fields: Vec<&Field> = self.given.act.fields().collect();
        if fields.iter().all(|field| is_fixed(field)) {
            return html! {};
        }
        html! {
            details open[!self.is_ready()] {
                summary { @if self.is_ready() { "Other arguments" } @else { "Arguments" } }
                form method="get" action=(frame.to(&format!("act/{}", self.act))) {
                    input type="hidden" name="form" value="yes";
                    @for field in fields {
                        @if is_fixed(field) {
                            input type="hidden" name=(field.name) value=[self.given.text(field.name)];
                        } @else { (input(field, self.given.text(field.name))) }
                    }
                    p .field .acts { button type="submit" { "Preview" } }
                }
            }
        }
    }

    fn list_sample(&self, frame: &Frame) -> Markup {
        const COLUMNS: [Column; 4] = [
            Column::new("Task", "id", Shown::Link("tasks")),
            Column::new("Status", "status", Shown::State),
            Column::new("Attempts", "attempt", Shown::Count),
            Column::new("Ended or created", "at", Shown::Age),
        ];
        html! {
            section .first aria-labelledby="sample" {
                header { h2 #sample { "A sample of " (self.sample.len()) } }
                (plain(frame, &COLUMNS, &self.sample))
            }
        }
    }
}

fn page_of_lambda(lambda: &str) -> String {
    format!("lambdas/{}", crate::pages::parts::encoded(lambda))
}

fn number(one: &Count) -> String {
    format!("{}{}", count(one.tasks), if one.and_more { "+" } else { "" })
}

fn input(field: &Field, text: Option<&str>) -> Markup {
    let id = format!("field-{}", field.name);
    html! {
        p .field {
            @match field.kind {
                Kind::Flag => label for=(id) {
                    input id=(id) name=(field.name) type="checkbox" value="yes"
                        checked[matches!(text, Some("yes" | "true"))]; " " (field.label)
                },
                Kind::Choice(of) => {
                    label for=(id) { (field.label) }
                    select id=(id) name=(field.name) {
                        @if !field.is_required || text.is_none() { option value="" { "–" } }
                        @for one in of { option selected[text == Some(*one)] { (one) } }
                    }
                }
                _ => {
                    label for=(id) { (field.label) }
                    input id=(id) name=(field.name) value=[text] autocomplete="off";
                }
            }
        }
    }
}

impl Show for Preview {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn part(&self) -> Part {
        match self.given.act.of {
            Of::Task | Of::Chain | Of::Tasks => Part::Tasks,
            Of::Key | Of::Gate | Of::Limit => Part::Waits,
            Of::Periodic => Part::Periodic,
            Of::Lambda => Part::Overview,
            Of::Operation => Part::Other,
        }
    }

    fn status(&self) -> StatusCode {
        if self.is_again { StatusCode::CONFLICT } else { StatusCode::OK }
    }

    fn body(&self, frame: &Frame) -> Markup {
        let address = format!("{}{}", frame.base, frame.here);
        let is_empty = self.given.act.is_counted()
            && self.count.as_ref().is_some_and(|count| count.tasks == 0);
        html! {
            div .lead {
                h1 { (self.title) "?" }
                p { "nothing has been done yet" }
            }
            @if let Some(note) = &self.note { p .note.warm[self.is_again] role="status" { (note) } }
            div .cols .two {
                div {
                    (self.facts(frame))
                    @if self.is_ready() {
                        @if is_empty && self.why.is_none() {
                            p { "No task matches now." }
                            p .acts { a .act href=(self.back(frame)) { "Change nothing" } }
                        } @else { (self.confirmation(frame, &address)) }
                    }
                    (self.arguments(frame))
                }
                div { @if !self.sample.is_empty() { (self.list_sample(frame)) } }
            }
        }
    }
}
