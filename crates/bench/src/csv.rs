//! A report as CSV for a spreadsheet or a plotting program: `part,figure,at,value`, a line for each figure.
//!
//! `at` is empty but for figures that have several values: the share of a distribution, the seconds of a
//! course, the number of a round.

use serde_json::{Map, Value};

use super::report::{Outcome, Report};

impl Report {
    /// Every number of every part.
    ///
    /// # Errors
    /// A part that is not an object of JSON; there is none.
    pub fn csv(&self) -> serde_json::Result<String> {
        let mut text = String::from("part,figure,at,value\n");
        for outcome in self.all() {
            let part = quoted(outcome.part.as_deref().unwrap_or(outcome.workload));
            for (figure, at, value) in figures(outcome)? {
                text += &format!("{part},{figure},{at},{value}\n");
            }
        }
        Ok(text)
    }
}

type Figure = (String, String, f64);

fn figures(outcome: &Outcome) -> serde_json::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut all: Map<String, Value> = serde_json::from_value(serde_json::to_value(outcome)?)?;
    for list in ["distribution", "course"] {
        all.remove(list);
    }
    put_numbers(&mut figures, &all, "");
    for (took_ms, share) in &outcome.distribution {
        figures.push(("took_ms".to_owned(), share.to_string(), *took_ms));
    }
    for moment in &outcome.course {
        let all = serde_json::from_value(serde_json::to_value(moment)?)?;
        put_numbers(&mut figures, &all, &moment.at_s.to_string());
    }
    Ok(figures)
}

/// Numbers by their names, and those of lists and objects within.
fn put_numbers(figures: &mut Vec<Figure>, all: &Map<String, Value>, at: &str) {
    for (name, value) in all {
        match value {
            Value::Object(inner) => put_numbers(figures, inner, at),
            Value::Array(list) => {
                let numbers = (1..).zip(list).filter_map(|(n, v)| Some((n, v.as_f64()?)));
                figures.extend(numbers.map(|(n, v)| (name.clone(), format!("{n:.0}"), v)));
            }
            value => figures.extend(value.as_f64().map(|v| (name.clone(), at.to_owned(), v))),
        }
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::meter::Cost;
    use super::super::report::Moment;
    use super::*;

    #[test]
    fn each_number_of_a_measurement_has_a_line() {
        let moment = Moment {
            at_s: 10.0,
            p50_ms: Some(2.0),
            p99_ms: None,
            buffer_hits_per_task: Some(20.0),
            statement_hits_per_task: None,
            server_cpu_us_per_task: None,
        };
        let cost = Cost { wal_bytes_per_task: Some(487.5), ..Cost::default() };
        let outcome = Outcome {
            distribution: vec![(0.7, 0.5), (3.0, 1.0)],
            course: vec![moment],
            ..Outcome::new("drain", 10, 2.0, cost).with("rates", vec![4.0, 5.0])
        };
        let figures = figures(&outcome).unwrap();
        let has = |name: &str, at: &str, value: f64| {
            assert!(figures.contains(&(name.to_owned(), at.to_owned(), value)), "{figures:?}");
        };
        has("tasks_per_s", "", 5.0);
        has("wal_bytes_per_task", "", 487.5);
        has("rates", "2", 5.0);
        has("took_ms", "0.5", 0.7);
        has("buffer_hits_per_task", "10", 20.0);
        assert!(!figures.iter().any(|(name, ..)| name == "p99_ms"), "{figures:?}");
    }

    #[test]
    fn a_name_with_a_comma_is_quoted() {
        assert_eq!(quoted("1 lambdas, \"2\" connections"), "\"1 lambdas, \"\"2\"\" connections\"");
        assert_eq!(quoted("before"), "before");
    }
}
