//! Ids in JSON are strings: a program that reads numbers as doubles loses the digits of large ones.
//!
//! Promises: every id, also in a list, is a string of digits. Fields that users fill (payload, output,
//! checkpoint) are not changed.

use serde_json::Value;

/// Fields that hold an id, beside `id`, `ids` and what ends in `_id` or `_ids`.
const NAMES: [&str; 5] = ["chain", "last_task", "operation", "parents", "watched"];

/// Fields that users fill.
const WRITTEN_BY_USERS: [&str; 5] = ["payload", "old_payload", "output", "checkpoint", "values"];

/// The value with its ids as strings.
pub fn as_strings(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(as_strings).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| field(name, value)).collect())
        }
        other => other,
    }
}

fn field(name: String, value: Value) -> (String, Value) {
    let value = match value {
        value if WRITTEN_BY_USERS.contains(&name.as_str()) => value,
        value if is_id(&name) => digits(value),
        value => as_strings(value),
    };
    (name, value)
}

fn is_id(name: &str) -> bool {
    let last = name.rsplit('_').next();
    matches!(last, Some("id" | "ids")) || NAMES.contains(&name)
}

/// A number, or each number of a list, as its digits.
fn digits(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(items) => items.into_iter().map(digits).collect(),
        other => as_strings(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_strings_and_the_rest_is_as_it_was() {
        let largest = (1_i64 << 51) - 1;
        let said = json!([{
            "id": largest, "executor_id": 7, "last_task": null, "attempt": 2,
            "chain": {"id": 1, "ids": [1, 2]}, "payload": {"id": 3, "to_ids": [4]},
        }]);
        let wanted = json!([{
            "id": largest.to_string(), "executor_id": "7", "last_task": null, "attempt": 2,
            "chain": {"id": "1", "ids": ["1", "2"]}, "payload": {"id": 3, "to_ids": [4]},
        }]);
        assert_eq!(as_strings(said), wanted);
    }
}
