//! Programs that choose their role: clients and workers of the SDK, and the command line.

use serde_json::{Value, json};
use tokio_postgres::Config;
use tuskline_sdk::{
    Client, Connection, Context, ErrorKind, Lambda, NewTask, Outcome, TaskId, Worker,
};

use super::migrate_refusals::{Pooler, pool};
use crate::support::cli::tuskline;
use crate::support::company::Company;
use crate::support::{Running, quick, within};

/// The address of a login.
fn address(company: &Company, login: &str) -> Config {
    let mut config = company.db.config.clone();
    config.user(company.filled(&format!("<{login}>")));
    config
}

/// A client of the login `gateway`, which is no member of a group, as another role.
async fn gateway(company: &Company, role: &str) -> Client {
    let role = company.filled(&format!("<{role}>"));
    within(Client::builder(address(company, "gateway")).role(role).connect()).await.unwrap()
}

/// The role of a session, as SQL tells it.
async fn role_of(connection: &Connection) -> String {
    connection.query_one("select current_setting('role')", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_client_acts_as_a_role_of_its_login() {
    let company = Company::at_work().await;
    let refused = Client::connect(address(&company, "gateway")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused:#}");
    let shop = gateway(&company, "shop").await;
    shop.schedule(NewTask::new("send_email", &1)).await.unwrap();
    let refused = shop.schedule(NewTask::new("charge_card", &1)).await.unwrap_err();
    let said = company.filled(
        "denied: no_right: role <shop> has no right to schedule charge_card (an owner of the lambda can: \
         select tuskline.grant_lambda('charge_card', '<shop>', 'schedule'))",
    );
    assert_eq!(format!("{refused:#}"), said);
    // Another role on the same connections, for calls of one statement and of several.
    let biller = shop.as_role(company.filled("<biller>"));
    let task = biller.schedule(NewTask::new("charge_card", &2)).await.unwrap();
    let pair = [NewTask::new("charge_card", &3), NewTask::new("charge_card", &4)];
    let then = NewTask::new("charge_card", &5);
    company.run("select tuskline.grant_lambda('charge_card', '<biller>', 'inspect')").await;
    biller.schedule_many_then(pair, then).await.unwrap();
    assert_eq!(biller.status(task).await.unwrap().unwrap().payload, Some(json!(2)));
    assert_eq!(shop.status(task).await.unwrap().unwrap().payload, None);
    // A call leaves no role behind, and a transaction has the one that it sets.
    let mut connection = shop.connection().await.unwrap();
    assert_eq!(role_of(&connection).await, "none");
    let mut transaction = connection.transaction().await.unwrap();
    let set = company.filled("set local role <biller>");
    transaction.batch_execute(&set).await.unwrap();
    let within = Client::within(&mut transaction);
    within.schedule(NewTask::new("charge_card", &6)).await.unwrap();
    assert!(within.schedule(NewTask::new("send_email", &6)).await.is_err());
}

#[tokio::test]
async fn a_role_that_is_missing_or_not_ones_own_is_refused_by_name() {
    let company = Company::at_work().await;
    let shop = gateway(&company, "shop").await;
    let refused = async |role: &str| {
        let refused = shop.as_role(role).status(TaskId(1)).await.unwrap_err();
        (refused.kind(), refused.to_string())
    };
    let nobody = refused("no'body\" \\").await;
    assert_eq!(nobody, (ErrorKind::Invalid, "role \"no'body\" \\\" does not exist".to_owned()));
    let mailer = company.filled("<mailer>");
    let said = format!("denied: permission denied to set role \"{mailer}\"");
    assert_eq!(refused(&mailer).await, (ErrorKind::Denied, said.clone()));
    let worker = Worker::builder(address(&company, "gateway")).role(mailer.as_str());
    let body = |_: Value, _: Context| async { Outcome::Success(None) };
    let refused = within(worker.serve(Lambda::named("send_email", body)).run()).await.unwrap_err();
    assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::Denied, said));
    // The connections of the pool are as good as before.
    shop.schedule(NewTask::new("send_email", &1)).await.unwrap();
}

#[tokio::test]
async fn a_worker_acts_as_a_role_on_each_of_its_connections() {
    let company = Company::at_work().await;
    company.run("grant <mailer> to <gateway>; select tuskline.end_executor(<other>)").await;
    let body = |_: Value, context: Context| async move {
        context.progress(50.0, "by the client of the context").await.unwrap();
        Outcome::Success(None)
    };
    let worker = Worker::builder(address(&company, "gateway")).role(company.filled("<mailer>"));
    let worker = worker.config(quick()).serve(Lambda::named("send_email", body));
    let sdk_worker = Running::of(worker);
    company.db.until_status(company.filled("<mail>").parse().unwrap(), "success").await;
    let role: String =
        company.db.one("select role::text from tuskline.executor order by 1 desc limit 1").await;
    assert_eq!(role, company.filled("<mailer>"));
    company.db.until_asleep("send_email").await;
    assert!(company.db.cut_workers().await >= 3);
    let next = company.db.schedule("send_email").await;
    company.db.until_status(next, "success").await;
    // As after a restart of the server: the worker runs the recovery, as its role.
    company
        .run(
            "update tuskline_core.incarnation set started_at = started_at - interval '1 s';
             update tuskline_core.incarnation set written_by = xmin",
        )
        .await;
    let next = company.db.schedule("send_email").await;
    company.db.until_status(next, "success").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn behind_a_pooler_a_worker_sets_its_role_and_a_command_is_refused() {
    for how in [Pooler::Refuses, Pooler::Ignores] {
        let company = Company::at_work().await;
        company.run("grant <mailer> to <gateway>; select tuskline.end_executor(<other>)").await;
        let (listener, mut config, socket) = company.db.port().await;
        config.user(company.filled("<gateway>"));
        let pooler = tokio::spawn(pool(listener, socket, how));
        let body = |_: Value, _: Context| async { Outcome::Success(None) };
        let worker = Worker::builder(&config).role(company.filled("<mailer>"));
        let sdk_worker = Running::of(worker.serve(Lambda::named("send_email", body)));
        company.db.until_status(company.filled("<mail>").parse().unwrap(), "success").await;
        sdk_worker.stop().await;
        let url = format!(
            "postgresql://{}@127.0.0.1:{}/{}?sslmode=disable",
            company.filled("<gateway>"),
            config.get_ports()[0],
            config.get_dbname().unwrap()
        );
        let words = ["--role", &company.filled("<shop>"), "task", "schedule", "send_email"];
        let schedule = tuskline(&words).database(&url);
        let refused = tokio::task::spawn_blocking(|| schedule.run().refusal()).await.unwrap();
        let said = match how {
            Pooler::Refuses => "1 error: unsupported startup parameter: options (08P01)",
            Pooler::Ignores => {
                "1 error: a pooler ignores the parameter options, which sets the role (42501)"
            }
        };
        let hint = "\nhint: connect to the server directly";
        assert_eq!(refused, format!("{said}{hint}"));
        pooler.abort();
    }
}
