//! Owners of lambdas use the SDK for batches with a task after them, schedules, redriven dead
//! letters and bulk acts. The SQL verbs behind these calls have tests of their own.

use std::time::Duration;

use serde_json::json;
use tuskline_sdk::{
    Action, Breaker, Client, Context, Defined, Error, Gate, GateId, Lambda, Limit, LimitId, Missed,
    NewTask, On, OnDuplicate, OnFailure, Operation, OperationId, Outcome, Overlap, Periodic,
    Priority, Status, TaskId, Throttle, Unique,
};

use crate::support::{Db, Running, calm};

async fn client(db: &Db) -> Client {
    Client::connect(db.config.clone()).await.unwrap()
}

fn tasks(count: i64) -> Vec<NewTask> {
    (0..count).map(|n| NewTask::new("work", &n)).collect()
}

fn code(refused: &Error) -> &str {
    refused.code().unwrap_or_else(|| panic!("{refused}")).as_str()
}

#[tokio::test]
async fn the_task_after_a_batch_runs_once_all_of_it_has_ended_and_knows_what_it_came_to() {
    let db = Db::with_lambda("work").await;
    db.define("report").await;
    let _consumer = db.store_consumer();
    let body = |n: i64, _: Context| async move {
        match n {
            3 => Outcome::fatal("as it was told"),
            _ => Outcome::Success(Some(json!(n))),
        }
    };
    let report = |(): (), context: Context| async move {
        let parents = context.parents().await?;
        let ended = parents.iter().all(|one| one.status.is_some_and(Status::is_terminal));
        let sum: i64 = parents.iter().filter_map(|one| one.output.as_ref()?.as_i64()).sum();
        Ok::<_, Error>(json!([ended, parents.len(), sum]))
    };
    let lambdas = vec![Lambda::named("work", body), Lambda::named("report", report)];
    let sdk_worker = Running::start(&db, calm(), lambdas);
    let client = client(&db).await;
    let then = NewTask::new("report", &());
    let batch = client.schedule_many_then(&tasks(50), &then).await.unwrap();
    assert_eq!(batch.ids.len(), 50);
    let status = client.wait(batch.then, Duration::from_secs(60)).await.unwrap().unwrap();
    assert_eq!(status.output, Some(json!([true, 50, (0..50).sum::<i64>() - 3])));
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_batch_whose_last_task_is_refused_is_not_scheduled() {
    let db = Db::with_lambda("work").await;
    let then = NewTask::new("unheard_of", &());
    let refused = client(&db).await.schedule_many_then(&tasks(3), &then).await.unwrap_err();
    assert_eq!(code(&refused), "TK001");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}

#[tokio::test]
async fn a_task_after_tasks_that_have_ended_is_due() {
    let mut db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let first = db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    let within = Client::within(&mut db.client);
    let [task] = &tasks(1)[..] else { panic!() };
    let next = within.schedule_then(&[TaskId(first); 2], On::Success, task).await.unwrap();
    assert_eq!(db.status(next.0).await, "new");
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, next.0);
}

#[tokio::test]
async fn a_deploy_defines_its_schedules_and_changes_nothing_the_second_time() {
    let db = Db::with_lambda("work").await;
    let client = client(&db).await;
    let nightly = |cron| {
        Periodic::new("nightly", "work", cron)
            .zone("Europe/Berlin")
            .payload(&json!({"kind": "daily"}))
            .collection("reports")
            .priority(Priority::High)
            .missed(Missed::All { max: 7 })
            .grace(Duration::from_secs(90))
            .overlap(Overlap::Queue)
            .ends_at("2036-01-01T00:00:00Z".parse().unwrap())
    };
    assert_eq!(client.define_periodic(&nightly("30 2 * * *")).await.unwrap(), Defined::Defined);
    assert_eq!(client.define_periodic(&nightly("30 2 * * *")).await.unwrap(), Defined::Unchanged);
    assert_eq!(client.define_periodic(&nightly("30 3 * * *")).await.unwrap(), Defined::Changed);
    let row = db
        .lines(
            "select lambda, cron, zone, payload::text, collection, priority, missed, missed_max, grace, overlap, starts_at, \
             ends_at at time zone 'UTC' from tuskline.periodic",
        )
        .await;
    assert_eq!(
        row,
        [
            "work | 30 3 * * * | Europe/Berlin | {\"kind\":\"daily\"} | reports | high | all | 7 | 00:01:30 | queue | - | 2036-01-01T00:00:00"
        ]
    );
    assert!(client.pause_periodic("nightly", Some("quarter end")).await.unwrap());
    assert!(!db.one::<bool>("select enabled from tuskline.periodic").await);
    assert!(client.resume_periodic("nightly", None).await.unwrap());
    let task = client.run_periodic("nightly", None).await.unwrap().unwrap();
    let made = "select concat_ws(' ', lambda, payload->>'kind', collection, priority, status) from tuskline.tasks where id = $1";
    assert_eq!(db.ask::<String>(made, &[&task.0]).await, "work daily reports high enqueued");
    assert_eq!(client.run_periodic("none", None).await.unwrap(), None);
    assert!(client.drop_periodic("nightly", None).await.unwrap());
    assert!(!client.drop_periodic("nightly", None).await.unwrap());
    for (cron, zone) in [("every night", "UTC"), ("99 * * * *", "UTC"), ("@daily", "Mars/Phobos")] {
        let bad = Periodic::new("nightly", "work", cron).zone(zone);
        assert_eq!(
            code(&client.define_periodic(&bad).await.unwrap_err()),
            "TK023",
            "{cron} {zone}"
        );
    }
    let bad = Periodic::new("nightly", "unheard_of", "@daily");
    assert_eq!(code(&client.define_periodic(&bad).await.unwrap_err()), "TK001");
}

#[tokio::test]
async fn dead_letters_are_looked_at_and_let_go_again() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let client = client(&db).await;
    let ids = client.schedule_many(&tasks(3)).await.unwrap();
    for task in worker.claim(3).await {
        worker.fail_for_good(&task).await;
    }
    let all = Operation::new(Action::Redrive).lambda("work").limit(2).per_second(1_000.0);
    let preview = client.preview_operation(&all).await.unwrap();
    let [group] = &preview[..] else { panic!("{preview:?}") };
    assert_eq!((group.lambda.as_str(), group.status), ("work", Status::FatalFailure));
    assert_eq!((group.tasks, &group.first_ids[..]), (2, &ids[..2]));
    let one = Operation::new(Action::Redrive).tasks(&ids[2..]);
    let one = one.payload(&json!({"to": "ada"}));
    let number = client.start_operation(&one, Some("a typo")).await.unwrap();
    assert_eq!(ended(&db, &client, number).await, ("done".to_owned(), 1));
    let status = client.status(ids[2]).await.unwrap().unwrap();
    assert_eq!((status.status, status.payload), (Status::New, Some(json!({"to": "ada"}))));
    let number = client.start_operation(&all.canary(), Some("mended")).await.unwrap();
    assert!(client.stop_operation(number).await.unwrap());
    assert!(!client.stop_operation(number).await.unwrap());
    assert!(client.operation_progress(OperationId(4711)).await.unwrap().is_none());
    let nowhere = Operation::new(Action::Redrive);
    let refused = client.start_operation(&nowhere, Some("without tasks")).await.unwrap_err();
    assert_eq!(code(&refused), "TK029");
}

/// The state of an operation after the store consumer carried it out, and the number of changed tasks.
async fn ended(db: &Db, client: &Client, number: OperationId) -> (String, i64) {
    loop {
        db.run("select tuskline.run_policies()").await;
        let progress = client.operation_progress(number).await.unwrap().unwrap();
        if progress.state != "running" {
            return (progress.state, progress.changed);
        }
    }
}

#[tokio::test]
async fn an_operation_on_many_goes_batch_by_batch_until_it_is_done() {
    let db = Db::with_lambda("work").await;
    let client = client(&db).await;
    client.schedule_many(&tasks(1_500)).await.unwrap();
    let spared = NewTask::new("work", &0).priority(Priority::High);
    let spared = client.schedule(&spared).await.unwrap();
    let lower = Operation::new(Action::Priority(Priority::Low))
        .lambda("work")
        .priority(Priority::Normal)
        .statuses(&[Status::Enqueued]);
    let number = client.start_operation(&lower, Some("they can wait")).await.unwrap();
    db.run("select tuskline.run_policies()").await;
    let first = client.operation_progress(number).await.unwrap().unwrap();
    assert_eq!((first.state.as_str(), first.looked, first.changed), ("running", 1_000, 1_000));
    assert_eq!(ended(&db, &client, number).await, ("done".to_owned(), 1_500));
    assert_eq!(client.status(spared).await.unwrap().unwrap().priority, Priority::High);
    let cancel = Operation::new(Action::Cancel).lambda("work");
    let number = client.start_operation(&cancel, None).await.unwrap();
    assert!(client.stop_operation(number).await.unwrap());
    assert_eq!(ended(&db, &client, number).await, ("stopped".to_owned(), 0));
    let bad = Operation::new(Action::Retry).lambda("work").statuses(&[Status::New]);
    assert_eq!(code(&client.start_operation(&bad, None).await.unwrap_err()), "TK029");
}

#[tokio::test]
async fn ended_tasks_are_purged_by_filter_and_no_further_ones() {
    let db = Db::with_lambda("work").await;
    let client = client(&db).await;
    let ids = client.schedule_many(&tasks(3)).await.unwrap();
    client.cancel(ids[0], None).await.unwrap();
    client.cancel(ids[1], None).await.unwrap();
    let purge = Operation::new(Action::Purge).lambda("work").statuses(&[Status::Cancelled]);
    let young = client.start_operation(&purge, None).await.unwrap();
    let done = |changed| ("done".to_owned(), changed);
    assert_eq!(ended(&db, &client, young).await, done(0), "they ended less than a minute ago");
    let purge = purge.older_than(Duration::ZERO).limit(1);
    let number = client.start_operation(&purge, Some("only a trial")).await.unwrap();
    assert_eq!(ended(&db, &client, number).await, done(1));
    assert!(client.status(ids[0]).await.unwrap().is_none());
    assert!(client.status(ids[1]).await.unwrap().is_some(), "one at most");
    assert_eq!(client.status(ids[2]).await.unwrap().unwrap().status, Status::Enqueued);
    let all = Operation::new(Action::Purge);
    assert_eq!(code(&client.start_operation(&all, None).await.unwrap_err()), "TK029");
}

#[tokio::test]
async fn an_owner_sets_and_drops_each_policy() {
    let db = Db::with_lambda("work").await;
    let client = client(&db).await;
    let gate = Gate::pause("a broken relay").priority(Priority::Low);
    let gate = client.gate("work", &gate.lasting(Duration::from_secs(60))).await.unwrap();
    let again = client.gate("work", &Gate::drop("twice").priority(Priority::Low)).await;
    assert_eq!(code(&again.unwrap_err()), "TK015");
    assert!(client.ungate(gate).await.unwrap());
    assert!(!client.ungate(GateId(gate.0 + 1)).await.unwrap());

    let unseen = Gate::drop("a wrong address").collection("news");
    let refused = client.gate("work", &unseen).await.unwrap_err();
    assert_eq!(code(&refused), "TK016", "a name that no task has may be a slip");
    assert!(client.ungate(client.gate("work", &unseen.unseen()).await.unwrap()).await.unwrap());

    let fair = client.set_limit("work", &Limit::concurrency(3).fair()).await.unwrap();
    client.set_weight(fair, "ada", 2.0).await.unwrap();
    let rate = Limit::rate(0.5).by_key().collection("news").burst(4);
    let rate = client.set_limit("work", &rate).await.unwrap();
    let order = client.set_order("work", OnFailure::Skip).await.unwrap();
    let slow = client.throttle("work", &Throttle::new(2.0, "the relay is slow")).await.unwrap();
    let unfair = client.set_weight(rate, "ada", 2.0).await.unwrap_err();
    assert_eq!(code(&unfair), "TK018");
    let seen = "select concat_ws(' ', kind, collection, max_concurrency, per_second, burst, on_failure, reason) \
                  from tuskline.task_limit where dropped_at is null order by limit_id";
    let limits = ["concurrency 3", "rate news 0.5 4", "order skip", "rate 2 2 the relay is slow"];
    assert_eq!(db.all::<String>(seen).await, limits);
    for limit in [fair, rate, order, slow] {
        assert!(client.drop_limit(limit).await.unwrap());
    }
    assert!(!client.drop_limit(LimitId(slow.0 + 1)).await.unwrap());
    assert!(!client.unblock("work", "nothing").await.unwrap());

    let unique = Unique::period(Duration::from_secs(3_600)).on_duplicate(OnDuplicate::Reject);
    client.set_unique("work", &unique).await.unwrap();
    let task = || NewTask::new("work", &1).unique_key("one");
    client.schedule(task()).await.unwrap();
    assert_eq!(code(&client.schedule(task()).await.unwrap_err()), "TK027");
    assert!(client.drop_unique("work").await.unwrap());
    assert!(!client.drop_unique("work").await.unwrap());

    let breaker = Breaker::new(9, Duration::from_secs(60)).probe_after(Duration::from_secs(5));
    client.set_breaker("work", &breaker).await.unwrap();
    let never = client.set_breaker("work", &breaker.share(2.0)).await.unwrap_err();
    assert_eq!(code(&never), "TK026");
    assert!(client.drop_breaker("work").await.unwrap());
    assert!(!client.drop_breaker("work").await.unwrap());
}
