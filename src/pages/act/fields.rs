//! The fields of acts: names in the address, arguments of functions, and what a value may be.

/// A field of the form, and its argument.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in the address.
    pub name: &'static str,
    /// The argument of the function.
    pub argument: &'static str,
    pub kind: Kind,
    pub label: &'static str,
    pub is_required: bool,
    /// The value if the address says none.
    pub default: Option<&'static str>,
}

/// The values that a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A number of the database.
    Id,
    /// Up to 10,000 of them, with commas between.
    Ids,
    /// Texts, with commas between.
    Texts,
    /// Names from the outside in, with dots between.
    Path,
    Integer,
    Decimal,
    /// As in `2h`.
    Span,
    Time,
    Flag,
    Choice(&'static [&'static str]),
}

pub(super) const fn field(name: &'static str, kind: Kind, label: &'static str) -> Field {
    Field { name, argument: name, kind, label, is_required: false, default: None }
}

pub(super) const fn needed(name: &'static str, kind: Kind, label: &'static str) -> Field {
    Field { is_required: true, ..field(name, kind, label) }
}

pub(super) const fn as_argument(one: Field, argument: &'static str) -> Field {
    Field { argument, ..one }
}

pub(super) const TASK: [Field; 1] = [needed("task", Kind::Id, "Task")];
pub(super) const LAMBDA: [Field; 1] = [needed("lambda", Kind::Text, "Lambda")];
pub(super) const PERIODIC: [Field; 1] = [needed("name", Kind::Text, "Schedule")];
pub(super) const NOW: [Field; 1] =
    [as_argument(field("now", Kind::Flag, "Due now, not later"), "due_now")];

pub(super) const SCOPE: [Field; 5] = [
    field("collection", Kind::Text, "Only this collection"),
    field("priority", Kind::Choice(PRIORITIES), "Only this priority"),
    field("for", Kind::Span, "It ends after, as in 2h"),
    field("until", Kind::Time, "Or it ends at, in UTC"),
    field("unseen", Kind::Flag, "The collection may be one that no recent task has"),
];

pub(super) const PRIORITIES: &[&str] = &["critical", "high", "normal", "low"];

/// Fields that choose tasks. An empty filter is refused.
pub const FILTER: [Field; 12] = [
    field("lambda", Kind::Text, "Lambda"),
    field("collection", Kind::Text, "Collection"),
    field("priority", Kind::Choice(PRIORITIES), "Priority"),
    as_argument(field("status", Kind::Texts, "Status, or several with commas"), "statuses"),
    field("fingerprint", Kind::Text, "Cause (fingerprint)"),
    field("ids", Kind::Ids, "Ids, with commas"),
    field("key", Kind::Text, "Key"),
    field("field", Kind::Path, "Field of the payload, as in card.id"),
    field("equals", Kind::Text, "which equals"),
    as_argument(field("after", Kind::Time, "Created from, in UTC"), "created_from"),
    as_argument(field("before", Kind::Time, "Created to, in UTC"), "created_to"),
    field("limit", Kind::Id, "At most"),
];

pub(super) const PER_SECOND: [Field; 1] =
    [field("per_second", Kind::Decimal, "Tasks a second at most")];

pub(super) const KEY: [Field; 1] =
    [as_argument(needed("key", Kind::Text, "Ordering key"), "ordering_key")];
pub(super) const ENDED_BEFORE: [Field; 1] =
    [as_argument(field("ended_before", Kind::Time, "Ended before, in UTC"), "ended_to")];
pub(super) const TO_PRIORITY: [Field; 1] =
    [as_argument(needed("to", Kind::Choice(PRIORITIES), "New priority"), "value")];
pub(super) const TO_COLLECTION: [Field; 1] =
    [as_argument(needed("to", Kind::Text, "New collection"), "value")];
