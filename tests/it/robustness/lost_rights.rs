//! Workers whose role loses a right: they go on with the lambdas that are left.

use std::net::SocketAddr;

use serde_json::Value;
use tuskline_sdk::{Context, ErrorKind, Lambda, Outcome, Worker, WorkerBuilder};

use crate::support::company::Company;
use crate::support::{Running, free_address, get, quick, within};

/// Two closed lambdas, on which `mailer` may work.
async fn company() -> Company {
    let company = Company::of_roles().await;
    for lambda in LAMBDAS {
        let sql = format!(
            "select tuskline.define_lambda('{lambda}'),
                    tuskline.grant_lambda('{lambda}', '<mailer>', 'work'),
                    tuskline.grant_lambda('{lambda}', '<team_mail>', 'own')"
        );
        company.run(&sql).await;
    }
    company
}

const LAMBDAS: [&str; 2] = ["send_email", "charge_card"];

fn revoke(lambda: &str) -> String {
    format!("select tuskline.revoke_lambda('{lambda}', '<mailer>', 'work')")
}

fn grant(lambda: &str) -> String {
    format!("select tuskline.grant_lambda('{lambda}', '<mailer>', 'work')")
}

/// A worker of `mailer` that serves both lambdas.
fn worker(company: &Company) -> WorkerBuilder {
    let mut config = company.db.config.clone();
    config.user(company.filled("<mailer>"));
    let worker = Worker::builder(&config).config(quick());
    let body = |_: Value, _: Context| async { Outcome::Success(None) };
    LAMBDAS.iter().fold(worker, |worker, lambda| worker.serve(Lambda::named(lambda, body)))
}

/// Waits until a worker is registered for these lambdas and no others.
async fn until_registered(company: &Company, lambdas: &str) {
    let sql = format!(
        "select coalesce(string_agg(lambdas::text, ' ') = '{lambdas}', false)
           from tuskline.executor where ended_at is null"
    );
    company.db.until(&sql).await;
}

/// The answer of the probe once it contains this.
async fn probed(address: SocketAddr, text: &str) -> String {
    within(async {
        loop {
            let said = get(address, "/readyz").await;
            if said.contains(text) {
                return said;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_worker_that_loses_a_right_goes_on_with_its_other_lambdas() {
    let company = company().await;
    let address = free_address();
    let sdk_worker = Running::of(worker(&company).metrics(address));
    let before = company.db.schedule("charge_card").await;
    company.db.until_status(before, "success").await;
    company.run(&revoke("charge_card")).await;
    until_registered(&company, "{send_email}").await;
    let (held, sent) =
        (company.db.schedule("charge_card").await, company.db.schedule("send_email").await);
    company.db.until_status(sent, "success").await;
    assert_eq!(company.db.status(held).await, "enqueued");
    let said = probed(address, "registered: without").await;
    let text = "registered: without the right to work on charge_card\n";
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with(text), "{said}");
    // The next registration asks for each lambda again.
    company.run(&grant("charge_card")).await;
    let now: i64 = company.db.one("select max(executor_id) from tuskline.executor").await;
    company.run_as("mailer", &format!("select tuskline.end_executor({now})")).await;
    company.db.until_status(held, "success").await;
    until_registered(&company, "{send_email,charge_card}").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_may_work_on_one_of_two_lambdas_starts_with_that_one() {
    let company = company().await;
    company.run(&revoke("send_email")).await;
    let sdk_worker = Running::of(worker(&company));
    until_registered(&company, "{charge_card}").await;
    let task = company.db.schedule("charge_card").await;
    company.db.until_status(task, "success").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_worker_without_any_right_waits_for_one_and_a_new_worker_is_refused() {
    let company = company().await;
    let address = free_address();
    let sdk_worker = Running::of(worker(&company).metrics(address));
    until_registered(&company, "{send_email,charge_card}").await;
    company.run(&format!("{}; {}", revoke("charge_card"), revoke("send_email"))).await;
    let said = probed(address, "has no right to work").await;
    assert!(said.starts_with("HTTP/1.1 503"), "{said}");
    let text = company.filled(
        "not registered: denied: no_right: role <mailer> has no right to work charge_card \
         (an owner of the lambda can: select tuskline.grant_lambda('charge_card', '<mailer>', 'work'))\n",
    );
    assert!(said.ends_with(&text), "{said}");
    let refused = within(worker(&company).run()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused:#}");
    let task = company.db.schedule("send_email").await;
    company.run(&grant("send_email")).await;
    company.db.until_status(task, "success").await;
    until_registered(&company, "{send_email}").await;
    sdk_worker.stop().await;
}
