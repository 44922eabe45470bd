//! Programs that choose their role: clients and workers of the SDK, and the command line. A read
//! without the right is refused, and not told as nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::Config;
use tuskline_sdk::{
    Client, Connection, Context, ErrorKind, Lambda, NewTask, Outcome, Privilege, TaskId, Worker,
};

use super::migrate_refusals::{Pooler, pool};
use crate::support::cli::{keys, on, tuskline, url};
use crate::support::company::Company;
use crate::support::{DEADLINE, Running, quick, within};

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

#[tokio::test]
async fn an_output_that_a_role_may_not_read_is_denied_and_not_told_as_none() {
    let company = Company::at_work().await;
    let [good, later, child] =
        ["<good>", "<later>", "<child>"].map(|name| TaskId(company.filled(name).parse().unwrap()));
    let client = within(Client::connect(address(&company, "rival"))).await.unwrap();
    company.run("select tuskline.grant_lambda('charge_card', '<rival>', 'schedule')").await;
    let refused = within(client.wait(good, DEADLINE)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    let said = company.filled(
        "denied: no_right: role <rival> has no right to inspect charge_card, so outputs are hidden \
         (task <good>: success) (an owner of the lambda can: \
         select tuskline.grant_lambda('charge_card', '<rival>', 'inspect'))",
    );
    assert_eq!(format!("{refused:#}"), said);
    let status = client.status(good).await.unwrap().unwrap();
    assert!(status.status.is_terminal() && status.output.is_none());
    let refused = client.parents(child).await.unwrap_err();
    let said =
        company.filled("role <rival> has no right to work or inspect charge_card, so outputs");
    assert!(refused.to_string().contains(&said), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    // It may wait for the end.
    let waiting = within(client.wait(later, Duration::from_millis(20))).await.unwrap().unwrap();
    assert!(!waiting.status.is_terminal());
    company.run("select tuskline.grant_lambda('charge_card', '<rival>', 'work')").await;
    let output = Some(json!({ "secret": "pan-4711" }));
    assert_eq!(client.parents(child).await.unwrap()[0].output, output);
    assert_eq!(within(client.wait(good, DEADLINE)).await.unwrap_err().kind(), ErrorKind::Denied);
    company.run("select tuskline.grant_lambda('charge_card', '<rival>', 'inspect')").await;
    let ended = within(client.wait(good, DEADLINE)).await.unwrap().unwrap();
    assert_eq!(ended.output, output);
}

#[tokio::test]
async fn an_owner_grants_and_revokes_by_the_client() {
    let company = Company::at_work().await;
    let client = within(Client::connect(address(&company, "mail_deploy"))).await.unwrap();
    let rival = company.filled("<rival>");
    let both = [Privilege::Schedule, Privilege::Inspect];
    assert!(client.grant_lambda("send_email", &rival, &both).await.unwrap());
    assert!(!client.grant_lambda("send_email", &rival, &both[..1]).await.unwrap());
    let theirs = client.as_role(&*rival);
    assert_eq!(
        theirs.may("send_email", Privilege::Inspect).await.unwrap_err().kind(),
        ErrorKind::Denied
    );
    let theirs = within(Client::connect(address(&company, "rival"))).await.unwrap();
    assert!(theirs.may("send_email", Privilege::Inspect).await.unwrap());
    assert!(!theirs.may("send_email", Privilege::Work).await.unwrap());
    assert!(theirs.may("open_one", Privilege::Own).await.unwrap());
    assert!(client.revoke_lambda("send_email", &rival, &both).await.unwrap());
    assert!(!client.revoke_lambda("send_email", &rival, &both).await.unwrap());
    assert!(!theirs.may("send_email", Privilege::Inspect).await.unwrap());
    let refused = async |lambda: &str, role: &str, rights: &[Privilege]| {
        client.grant_lambda(lambda, role, rights).await.unwrap_err().to_string()
    };
    let lines = [
        refused("send_email", "nobody", &both).await,
        refused("send_email", "public", &[Privilege::Own]).await,
        refused("send_email", &rival, &[]).await,
        refused("send_mail", &rival, &both).await,
        refused("charge_card", &rival, &both).await,
        "wrok".parse::<Privilege>().unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(
        lines.join("\n").replace(&format!("_{}", company.db.config.get_dbname().unwrap()), "")
    );
}

/// The answer of a command of `gateway`, or its exit code and its error.
fn said(company: &Company, line: &str) -> String {
    let config = address(company, "gateway");
    let ran = on(&config, &company.filled(line)).run();
    match ran.code {
        0 => ran.fine(),
        _ => ran.refusal(),
    }
}

#[tokio::test]
async fn the_command_line_acts_as_a_role_and_grants_rights() {
    let company = Company::at_work().await;
    let database = company.db.config.get_dbname().unwrap().to_owned();
    company.run("grant <mail_deploy>, <viewer> to <gateway>").await;
    let odd = format!("o'Dd \\ \"x\" {database}");
    let quoted = format!("\"{}\"", odd.replace('"', "\"\""));
    company.run(&format!("create role {quoted} in role <shop>; grant {quoted} to <gateway>")).await;
    let mut screen = String::new();
    for line in [
        "task schedule send_email",
        "--role <shop> task schedule send_email",
        "--role <shop> task schedule charge_card",
        "--role <shop> lambda list",
        "--role <mailer> task schedule send_email",
        "--role nobody task schedule send_email",
        "--role <mail_deploy> grant send_email <rival> schedule work",
        "--role <mail_deploy> grant send_email <rival> work",
        "--role <mail_deploy> grant send_email <rival> work inspect --json",
        "--role <mail_deploy> rights send_email",
        "--role <mail_deploy> revoke send_email <rival> work",
        "--role <mail_deploy> revoke send_email <rival> work",
        "--role <mail_deploy> revoke send_email <team_mail> own",
        "--role <mail_deploy> grant send_email nobody work",
        "--role <mail_deploy> grant send_email public own",
        "--role <mail_deploy> grant send_email <rival> wrok",
        "--role <mail_deploy> grant send_email <rival>",
        "--role <mail_deploy> grant send_mail <rival> work",
        "--role <mail_deploy> grant charge_card <rival> work",
        "--role <mail_deploy> grant * <rival> work",
        "--role <viewer> rights no_such",
        "--role <viewer> rights *",
    ] {
        let said = said(&company, line);
        screen += &format!("$ tuskline {}\n{}\n\n", line, said.trim_end());
    }
    // The width of a column depends on the name of the database.
    let screen = screen.replace(&format!("_{database}"), "");
    let narrow = |line: &str| match line.parse::<i64>() {
        Ok(_) => "<the task's id>".to_owned(),
        Err(_) => line.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let screen: Vec<String> = screen.lines().map(narrow).collect();
    let screen = screen.join("\n");
    insta::assert_snapshot!(screen);
    let odd_call = tuskline(&["--role", &odd, "task", "schedule", "send_email"]);
    odd_call.database(&url(&address(&company, "gateway"))).run().fine();
    let by_variable = on(&address(&company, "gateway"), "task schedule send_email");
    by_variable.env("TUSKLINE_ROLE", company.filled("<shop>")).run().fine();
    let migrated = said(&company, "--role <viewer> migrate");
    assert!(migrated.starts_with("1 error: migrate refuses this database: schema"), "{migrated}");
    let listed = on(&company.db.config, "rights --json").run().json();
    assert_eq!(keys(&listed), "granted_at granted_by lambda privilege role role_is_gone");
}
