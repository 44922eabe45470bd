//! The interleaving tester: a few sessions, each with its steps, in every order that keeps each
//! session's own.
//!
//! Whether a step waits is read from PostgreSQL's lock table, never guessed from time. Then the next
//! step in the order is taken, and the one that waits completes when it can. After each order: no
//! error, no deadlock, the verbs' answers add up, nothing is lost, and what is left can be brought to
//! its end.

mod queues;
mod red;
mod rescues;
mod results;
mod session;
mod stage;

use std::ops::RangeInclusive;

use session::Played;
use stage::{Stage, Theatre};

use crate::tally;

/// A scenario to play in every order. The texts are SQL with names in braces, see [`stage`]. A
/// session commits at its end unless it has a commit of its own.
struct Scenario {
    name: &'static str,
    stage: Stage,
    sessions: &'static [&'static [&'static str]],
    /// Where tasks may stand afterwards.
    allowed: &'static [&'static str],
    /// The allowed sums of the numbers that the steps answered.
    sum: RangeInclusive<i64>,
    /// Refusals that are in order.
    refusals: &'static [&'static str],
}

/// The treatment of a step that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The other sessions go on at once.
    None,
    /// A verb that gives up waiting by itself may do so first.
    UntilItGivesUp,
}

/// The result of a group of scenarios.
#[derive(Default)]
struct Count {
    orders: u64,
    waits: u64,
    wrong: Vec<String>,
}

/// Plays every scenario in every order. In some orders a verb waits that gives up waiting by
/// itself. Such an order is played once more, and the verb may give up first.
///
/// Most of the time goes by while steps wait, so two halves are played at the same time.
async fn play_all(group: &str, scenarios: &[Scenario]) {
    let (first, second) = scenarios.split_at(scenarios.len() / 2);
    let (first, second) = tokio::join!(play_some(first), play_some(second));
    let (scenarios, orders) = (scenarios.len(), first.orders + second.orders);
    let (waits, wrong) = (first.waits + second.waits, [first.wrong, second.wrong].concat());
    let json = serde_json::json!({
        "group": group, "scenarios": scenarios, "orders": orders, "waits": waits, "wrong": wrong.len(),
    });
    let said = format!("{group}: {scenarios} scenarios, {orders} orders, {waits} steps waited");
    tally::print(said, &json);
    assert!(wrong.is_empty(), "{} orders went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

async fn play_some(scenarios: &[Scenario]) -> Count {
    let mut theatre = Theatre::open("").await;
    let mut count = Count::default();
    for scenario in scenarios {
        for order in orders(scenario) {
            if play(&mut theatre, scenario, &order, Patience::None, &mut count).await {
                play(&mut theatre, scenario, &order, Patience::UntilItGivesUp, &mut count).await;
            }
        }
    }
    count
}

/// Plays one order; whether a verb waited that would have given up.
async fn play(
    theatre: &mut Theatre,
    scenario: &Scenario,
    order: &[usize],
    patience: Patience,
    count: &mut Count,
) -> bool {
    let played = theatre.play(scenario, order, patience).await;
    count.orders += 1;
    count.waits += played.waits;
    let would_give_up = played.would_give_up;
    let wrong = theatre.judge(scenario, played).await;
    if !wrong.is_empty() {
        let wrong = wrong.join("; ");
        count.wrong.push(format!("{} {order:?} {patience:?}: {wrong}", scenario.name));
    }
    would_give_up
}

/// Every order of the sessions' steps, as the numbers of the sessions in turn.
fn orders(scenario: &Scenario) -> Vec<Vec<usize>> {
    let mut left: Vec<_> = scenario.sessions.iter().map(|steps| turns(steps)).collect();
    let mut orders = Vec::new();
    extend(&mut left, &mut Vec::new(), &mut orders);
    orders
}

fn extend(left: &mut [usize], so_far: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if left.iter().all(|left| *left == 0) {
        orders.push(so_far.clone());
    }
    for session in 0..left.len() {
        if left[session] > 0 {
            left[session] -= 1;
            so_far.push(session);
            extend(left, so_far, orders);
            so_far.pop();
            left[session] += 1;
        }
    }
}

/// Its steps, and the end of its transaction.
fn turns(steps: &[&str]) -> usize {
    steps.len() + usize::from(steps.last() != Some(&"rollback"))
}

#[test]
fn the_orders_are_all_there_are() {
    let scenario = Scenario {
        name: "two sessions of two steps and one of one",
        stage: Stage::default(),
        sessions: &[&["one"], &["two"], &["rollback"]],
        allowed: &[],
        sum: 0..=0,
        refusals: &[],
    };
    let orders = orders(&scenario);
    let different: std::collections::BTreeSet<_> = orders.iter().collect();
    assert_eq!((orders.len(), different.len()), (30, 30), "5! / (2! 2! 1!)");
}
