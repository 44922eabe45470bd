//! The screen without a terminal and without a database: keys go in, actions and frames come out.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::command::{Command, Meant};
use super::draw::{Theme, draw};
use super::state::{Action, Event, Inside, Request, State};
use super::text_of;
use super::view::{Target, View};
use crate::facts::{Answers, Facts};
use crate::store::figures::{Gauge, QueueGauge};
use crate::store::overview::{Count, DeadGroup, Executor, Gate, Held, HeldTask, Letter, Waiting};

fn queue(lambda: &str, depth: i64, paused: bool) -> QueueGauge {
    QueueGauge {
        queue_id: 1,
        lambda: lambda.to_owned(),
        priority: "normal".to_owned(),
        depth,
        oldest_ms: (depth > 0).then_some(1_000),
        head_seq: None,
        paused,
        enqueued: depth,
    }
}

fn gate(gate_id: i64, lambda: &str, collection: Option<&str>) -> Gate {
    Gate {
        gate_id,
        lambda: lambda.to_owned(),
        collection: collection.map(str::to_owned),
        priority: None,
        action: "pause".to_owned(),
        reason: "complaints".to_owned(),
        author: "ada".to_owned(),
        age_ms: 7_200_000,
        opens_in_ms: Some(60_000),
        parked: Count { tasks: 1_000, and_more: collection.is_some() },
    }
}

fn group(lambda: &str, fingerprint: &str, tasks: i64) -> DeadGroup {
    DeadGroup {
        lambda: lambda.to_owned(),
        fingerprint: fingerprint.to_owned(),
        count: Count { tasks, and_more: tasks == 1_000 },
        latest_id: 77,
        latest_ms: 125_000,
        collection: Some("eu".to_owned()),
        error_class: Some("Declined".to_owned()),
        message: Some("no such card \u{1b}[31m".to_owned()),
    }
}

fn answers() -> Answers {
    let worker = |name: &str| Gauge {
        name: "workers".to_owned(),
        lambda: Some(name.to_owned()),
        value: 2.0,
    };
    Answers {
        installation: "default".to_owned(),
        queues: vec![
            queue("charge", 40, false),
            queue("email", 1_200, true),
            queue("image", 0, false),
        ],
        gauges: ["charge", "email", "image"].map(worker).to_vec(),
        held: vec![Held {
            executor_id: Some(9),
            lambda: "charge".to_owned(),
            count: Count { tasks: 3, and_more: false },
        }],
        waits: vec![Waiting {
            cause: "gate".to_owned(),
            lambda: "email".to_owned(),
            count: Count { tasks: 2_000, and_more: true },
            estimate: 2_000,
            oldest_ms: None,
        }],
        gates: vec![gate(5, "email", None), gate(6, "email", Some("eu"))],
        executors: vec![Executor {
            executor_id: 9,
            host: "web-1".to_owned(),
            pid: 41,
            state: "alive".to_owned(),
            lambdas: vec!["charge".to_owned()],
            sdk_version: "0.1.0".to_owned(),
            beat_ms: 1_200,
            age_ms: 90_000_000,
        }],
        dead_groups: vec![group("charge", "f00d", 1_000), group("image", "Io", 2)],
        ..Answers::default()
    }
}

fn state() -> State {
    let mut state = State::of(View::Lambdas);
    state.on(Event::Facts(Box::new(Facts::of(&answers()))));
    state
}

/// Presses keys, a character each; `>` is Enter, `<` is Esc. The actions of the last one.
fn press(state: &mut State, keys: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    for key in keys.chars() {
        let code = match key {
            '>' => KeyCode::Enter,
            '<' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            key => KeyCode::Char(key),
        };
        actions = state.on(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    actions
}

fn frame(state: &State, columns: u16, lines: u16) -> String {
    let theme =
        Theme { colour: false, database: "database shop as me".to_owned(), since: "5m".to_owned() };
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| draw(frame, state, &theme)).unwrap();
    text_of(terminal.backend().buffer())
}

fn foresee(command: &Command) -> Vec<Action> {
    vec![Action::Ask(Request::Foresee(command.clone()))]
}

fn perform(command: &Command, reason: &str) -> Vec<Action> {
    vec![Action::Ask(Request::Do(command.clone(), reason.to_owned()))]
}

#[test]
fn a_pause_needs_its_sentences_a_reason_and_enter() {
    let mut state = state();
    let command = Command::Pause { lambda: "charge".to_owned() };
    press(&mut state, "/charge>");
    assert_eq!(press(&mut state, "g"), foresee(&command));
    assert_eq!(press(&mut state, "why>"), [], "nothing was shown yet");
    state.on(Event::Foreseen(command.clone(), Vec::new()));
    let shown = frame(&state, 80, 24);
    assert!(shown.contains("40 tasks stay queued"), "{shown}");
    assert_eq!(press(&mut state, " not>"), perform(&command, "why not"));
    assert!(state.dialog.is_none());
}

#[test]
fn a_dialog_without_a_reason_or_with_esc_changes_nothing() {
    let mut state = state();
    let command = Command::Redrive { lambda: "charge".to_owned(), fingerprint: "f00d".to_owned() };
    assert_eq!(press(&mut state, "5r"), foresee(&command));
    let meant = vec![Meant { status: "dead".to_owned(), tasks: 1_700 }];
    state.on(Event::Foreseen(command.clone(), meant));
    assert_eq!(press(&mut state, "  >"), []);
    let shown = frame(&state, 80, 24);
    assert!(
        shown.contains("A reason is needed.") && shown.contains("1,700 tasks return"),
        "{shown}"
    );
    assert_eq!(press(&mut state, "x<"), []);
    assert!(state.dialog.is_none());
    // The keys of a dialog are letters of the reason, not commands.
    press(&mut state, "r");
    state.on(Event::Foreseen(command.clone(), Vec::new()));
    assert_eq!(press(&mut state, "quit>"), perform(&command, "quit"));
}

#[test]
fn an_answer_to_another_question_is_not_shown() {
    let mut state = state();
    press(&mut state, "/charge>g");
    state.on(Event::Foreseen(Command::Pause { lambda: "image".to_owned() }, Vec::new()));
    assert_eq!(press(&mut state, "why>"), []);
    assert!(frame(&state, 80, 24).contains("The database is counting"));
}

#[test]
fn the_selected_one_of_several_gates_is_opened() {
    let mut state = state();
    press(&mut state, "/email>");
    assert_eq!(press(&mut state, "u"), []);
    assert!(frame(&state, 80, 24).contains("Several gates are set"));
    let target = Target::Lambda("email".to_owned());
    assert_eq!(press(&mut state, ">"), [Action::Ask(Request::Open(Some(target)))]);
    let command = Command::Open { gate: 6, lambda: "email".to_owned() };
    assert_eq!(press(&mut state, "ju"), foresee(&command));
    state.on(Event::Foreseen(command.clone(), Vec::new()));
    assert!(frame(&state, 80, 24).contains("1,000+ parked tasks of collection eu"));
    assert_eq!(press(&mut state, ">"), []);
    assert_eq!(press(&mut state, "ok>"), perform(&command, "ok"));
    assert_eq!(press(&mut state, "<"), [Action::Ask(Request::Open(None))]);
}

#[test]
fn a_selection_follows_its_row() {
    let mut state = state();
    press(&mut state, "j");
    let name = |state: &State| {
        state.facts.as_ref().map(|facts| facts.lambdas[state.selected()].lambda.clone())
    };
    let before = name(&state);
    let mut other = answers();
    other.queues.push(queue("aaa", 5_000, false));
    state.on(Event::Facts(Box::new(Facts::of(&other))));
    assert_eq!(name(&state), before);
    assert_ne!(state.selected(), 1);
    press(&mut state, "kkkkkk");
    assert_eq!(state.selected(), 0);
    press(&mut state, "G");
    assert_eq!(state.selected(), 3);
}

#[test]
fn keys_change_the_view_filter_and_quit() {
    let mut state = state();
    for (key, view) in [("3", View::Executors), ("\t", View::Waits), ("2", View::Queues)] {
        press(&mut state, key);
        assert_eq!(state.view, view);
    }
    press(&mut state, "/im");
    assert_eq!(state.shown().len(), 1);
    press(&mut state, "<");
    assert_eq!(state.shown().len(), 3);
    assert_eq!(press(&mut state, "q"), [Action::Quit]);
    let control = |key| Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
    assert_eq!(state.on(control('c')), [Action::Quit]);
    assert_eq!(state.on(control('z')), [Action::Suspend]);
    press(&mut state, "/im");
    let escape_and_q = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT);
    assert_eq!(state.on(Event::Key(escape_and_q)), [Action::Quit]);
    assert_eq!(state.shown().len(), 3);
    press(&mut state, "3");
    assert_eq!(press(&mut state, "g"), []);
    assert_eq!(state.notice.as_deref(), Some("Select a lambda to pause."));
}

#[test]
fn a_lost_database_is_a_banner_and_the_facts_stay() {
    let mut state = state();
    state.on(Event::Lost("connection refused".to_owned()));
    let shown = frame(&state, 80, 24);
    assert!(shown.contains("NO CONNECTION: connection refused") && shown.contains("charge"));
    state.on(Event::Facts(Box::new(Facts::of(&answers()))));
    assert!(!frame(&state, 80, 24).contains("NO CONNECTION"));
}

#[test]
fn no_size_of_a_terminal_and_no_view_panics() {
    let mut state = state();
    for (columns, lines) in [(1, 1), (10, 3), (79, 24), (80, 15), (80, 16), (200, 16), (300, 100)] {
        for keys in ["1", "2", "3", "4", "5", "?", "?", "1>", "<g", "<5>", "<3>", "<"] {
            press(&mut state, keys);
            let shown = frame(&state, columns, lines);
            assert!(!shown.contains('\u{1b}'), "{shown:?}");
        }
    }
    assert!(frame(&State::default(), 80, 24).contains("not answered yet"));
    assert!(frame(&state, 70, 20).contains("needs 80 columns and 16 lines"));
}

#[test]
fn the_inside_of_each_thing_at_80_and_at_160_columns() {
    let mut shown = String::new();
    for columns in [80, 160] {
        let mut state = state();
        press(&mut state, "/email>>");
        let target = Target::Lambda("email".to_owned());
        state.on(Event::Inside(target, Inside::Lambda(vec![group("email", "Timeout", 3)])));
        shown += &frame(&state, columns, 16);
        press(&mut state, "<<3>");
        let task = HeldTask {
            id: 1 << 44,
            lambda: "charge".to_owned(),
            collection: None,
            status: "claimed".to_owned(),
            attempt: 2,
            due_ms: 61_000,
        };
        state.on(Event::Inside(Target::Executor(9), Inside::Executor(vec![task])));
        shown += &frame(&state, columns, 16);
        press(&mut state, "<5>");
        let letter = Letter {
            id: 77,
            collection: Some("eu".to_owned()),
            priority: "high".to_owned(),
            status: "dead".to_owned(),
            attempt: 5,
            error_class: Some("Declined".to_owned()),
            message: Some("no such card".to_owned()),
            died_ms: 125_000,
            expires_ms: 2_000_000_000,
            payload: Some("{\"card\": 7}".to_owned()),
        };
        let target = Target::Dead("charge".to_owned(), "f00d".to_owned(), 77);
        state.on(Event::Inside(target, Inside::Dead(Some(letter))));
        shown += &frame(&state, columns, 16);
        press(&mut state, "<?");
        shown += &frame(&state, columns, 24);
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn an_unknown_number_is_no_zero_and_its_lambda_is_not_idle() {
    let unknown = Count { tasks: 0, and_more: true };
    let mut answers = answers();
    let of = |executor_id| Held { executor_id, lambda: "image".to_owned(), count: unknown };
    answers.gates.clear();
    answers.held = vec![of(None)];
    let waits = |cause: &str| Waiting {
        cause: cause.to_owned(),
        lambda: "image".to_owned(),
        count: unknown,
        estimate: 0,
        oldest_ms: None,
    };
    answers.waits = vec![waits("due"), waits("dependency")];
    let facts = Facts::of(&answers);
    let image = facts.lambda("image").unwrap();
    assert_eq!((image.health.word(), image.held, image.waiting), ("ok", unknown, unknown));
    assert_eq!(facts.executors[0].held, unknown, "a worker that was not read");
    let causes = facts.waits.iter().filter(|row| row.lambda == "image" && row.count == unknown);
    assert_eq!(causes.count(), 2);
    let said = Command::Pause { lambda: "image".to_owned() }.sentences(&facts, &[]);
    assert!(said[1].ends_with("an unknown number wait for other causes."), "{said:?}");
    assert!(said[2].starts_with("Workers hold an unknown number of its tasks:"), "{said:?}");
    let mut state = State::of(View::Lambdas);
    state.on(Event::Facts(Box::new(facts)));
    let shown = frame(&state, 80, 24);
    let row = shown.lines().find(|line| line.starts_with("image")).unwrap();
    assert_eq!(row.matches('?').count(), 2, "{row}");
}
