//! The cost of rights: bytes of log, pages and statements of a call before a right is granted and after,
//! and pages by the numbers of grants and of roles.

use std::ops::Add;

use serde_json::Value;
use tokio_postgres::Client;
use tuskline_postgres::{Cluster, SUPERUSER};

/// A call of a role, and its bounds.
struct Call {
    name: &'static str,
    /// How many tasks it schedules, or reports and claims.
    tasks: i32,
    unused: Cost,
    /// The pages and statements that a right adds if the role has it by name.
    added: Cost,
}

impl Call {
    fn line(&self, cost: Cost) -> String {
        format!("{} of {}: {cost:?}", self.name, self.tasks)
    }
}

/// Bytes of log, pages, and statements, the call itself among these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    wal_bytes: i64,
    pages: i64,
    statements: i64,
}

impl Cost {
    fn is_within(&self, bound: &Self) -> bool {
        self.wal_bytes <= bound.wal_bytes + ROOM
            && self.pages <= bound.pages
            && self.statements <= bound.statements
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        cost(
            self.wal_bytes + other.wal_bytes,
            self.pages + other.pages,
            self.statements + other.statements,
        )
    }
}

const fn cost(wal_bytes: i64, pages: i64, statements: i64) -> Cost {
    Cost { wal_bytes, pages, statements }
}

/// Measured on 15: on 18 an exchange of ten tasks reads 96 pages. A build without rights had the same
/// figures as one in which no right is granted.
#[rustfmt::skip]
const CALLS: [Call; 5] = [
    Call { name: "schedule", tasks: 1, unused: cost(281, 10, 4), added: cost(0, 0, 0) },
    Call { name: "insert", tasks: 1, unused: cost(281, 11, 5), added: cost(0, 0, 0) },
    Call { name: "schedule_many", tasks: 100, unused: cost(28_694, 819, 5), added: cost(0, 0, 0) },
    Call { name: "exchange", tasks: 1, unused: cost(498, 32, 16), added: cost(0, 5, 2) },
    Call { name: "exchange", tasks: 10, unused: cost(2_540, 132, 17), added: cost(0, 5, 2) },
];

/// Bytes by which the cheapest of some calls differs from run to run.
const ROOM: i64 = 16;

/// With rights it may read a tenth more pages.
const LATEST: &str = "select * from tuskline.tasks order by id desc limit 50";

/// Tasks in the tables before a call is counted: indexes have their height.
const TASKS: i32 = 100_000;

/// Calls before one is counted: the first ones of a session plan.
const WARM: usize = 12;

/// A plain insert, whose triggers EXPLAIN counts as a part of the call.
const INSERT: &str = "
    create function public.insert_one() returns void language plpgsql as $$
    begin
      insert into tuskline.task (lambda, payload) values ('work', to_json(repeat('x', 100)));
    end $$";

/// A schema of an ordinary role, and a service that executes each verb.
const ROLES: &str = "
    create role owner login;
    grant create on database postgres to owner;
    create role service login;
    create role team";
const VERBS: &str = "
    grant usage on schema tuskline to service;
    grant execute on all functions in schema tuskline to service;
    grant select on tuskline.tasks to service;
    grant insert, select (id) on tuskline.task to service;
    grant usage on sequence tuskline.task_seq to service";

/// The first lambda is closed, and the service has its rights by name.
const CLOSE: &str = "
    select tuskline.grant_lambda('work', 'service', 'schedule', 'work', 'inspect'),
           tuskline.grant_lambda('work', 'team', 'own')";

struct Service {
    /// The session of a superuser that sets roles: only it counts statements.
    client: Client,
    counts: bool,
    executor: i64,
    queue: i32,
}

impl Service {
    async fn run(&self, role: &str, sql: &str) {
        let all = format!("set role {role}; {sql}; reset role");
        self.client.batch_execute(&all).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
    }

    async fn one(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The statement of a call, whose tasks wait.
    async fn statement(&self, call: &Call) -> String {
        let tasks = call.tasks;
        match call.name {
            "schedule" => "select tuskline.schedule('work', to_json(repeat('x', 100)))".into(),
            "insert" => "select public.insert_one()".into(),
            "schedule_many" => format!(
                "select tuskline.schedule_many(array_fill('work'::text, array[{tasks}]),
                   array_fill(to_json(repeat('x', 100)), array[{tasks}]))"
            ),
            _ => {
                let last =
                    "select format('array%s, array_fill(%s::bigint, array[%s]), null, array[%2$s]',
                         array_to_json(l.task_ids), l.lease_id, cardinality(l.task_ids))
                      from tuskline.lease l order by l.lease_id desc limit 1";
                let results: String = self.client.query_one(last, &[]).await.unwrap().get(0);
                format!(
                    "select tuskline.exchange({}, {results}, array[{}], '{{0}}', '{{1}}', '{{{tasks}}}')",
                    self.executor, self.queue
                )
            }
        }
    }

    /// The cost of the cheapest of some calls. A dearer one extends a table.
    async fn cost(&self, call: &Call) -> Cost {
        let mut least = cost(i64::MAX, i64::MAX, 0);
        if call.name == "exchange" {
            let claim = format!(
                "select tuskline.claim({}, array[{}], '{{0}}', '{{1}}', '{{{}}}')",
                self.executor, self.queue, call.tasks
            );
            self.run("service", &claim).await;
        }
        for _ in 0..WARM {
            let sql = self.statement(call).await;
            self.run("service", &sql).await;
        }
        for _ in 0..20 {
            let sql = self.statement(call).await;
            let (wal_bytes, pages) = self.log_and_pages(&sql).await;
            least.wal_bytes = least.wal_bytes.min(wal_bytes);
            least.pages = least.pages.min(pages);
        }
        if self.counts {
            let sql = self.statement(call).await;
            least.statements = self.statements(&sql).await;
        }
        least
    }

    async fn log_and_pages(&self, sql: &str) -> (i64, i64) {
        let explain = format!("explain (analyze, buffers, wal, timing off, format json) {sql}");
        self.client.batch_execute("set role service").await.unwrap();
        let plan = self.client.query_one(&explain, &[]).await;
        self.client.batch_execute("reset role").await.unwrap();
        let plan: Value = plan.unwrap_or_else(|error| panic!("{error:?}: {sql}")).get(0);
        let count = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        (count("WAL Bytes"), count("Shared Hit Blocks") + count("Shared Read Blocks"))
    }

    /// The pages of the cheapest of some calls.
    async fn pages(&self, sql: &str) -> i64 {
        let mut least = i64::MAX;
        for _ in 0..WARM {
            least = least.min(self.log_and_pages(sql).await.1);
        }
        least
    }

    async fn statements(&self, sql: &str) -> i64 {
        let track = "set pg_stat_statements.track";
        let begin = format!("{track} = 'all'; select pg_stat_statements_reset()");
        self.client.batch_execute(&begin).await.unwrap();
        self.run("service", sql).await;
        self.client.batch_execute(&format!("{track} = 'none'")).await.unwrap();
        self.one(
            "select sum(calls)::bigint from pg_stat_statements
              where query not like 'select pg_stat_statements_reset%' and query not like 'set %'
                and query <> 'reset role'",
        )
        .await
    }
}

/// A schema of an ordinary role, with so many lambdas and an executor for the first one.
async fn service(server: &Cluster, lambdas: i32) -> Service {
    let mut config = server.config("postgres");
    let connect = async |config: &tokio_postgres::Config| {
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let client = connect(config.user(SUPERUSER)).await;
    client.batch_execute(ROLES).await.unwrap();
    let address = tuskline_sdk::Address::from(config.user("owner").clone());
    tuskline::migrate::migrate(&address).await.unwrap();
    let counts = server.binaries().have_library("pg_stat_statements");
    if counts {
        client.batch_execute("create extension pg_stat_statements schema public").await.unwrap();
    }
    client
        .batch_execute(&format!("set pg_stat_statements.track = 'none'; {INSERT}"))
        .await
        .unwrap();
    let mut service = Service { client, counts, executor: 0, queue: 0 };
    let define = format!(
        "select tuskline.define_lambda('work');
         select count(tuskline.define_lambda('other_' || n)) from generate_series(2, {lambdas}) n"
    );
    service.run("owner", &format!("{VERBS}; {define}")).await;
    service
        .run("service", "select tuskline.register_executor('host', 1, '{work}', '0.1.0', '1 hour')")
        .await;
    service.executor = service.one("select max(executor_id) from tuskline.executor").await;
    let queue = "select q.queue_id::bigint from tuskline.queue q where (lambda, priority) = ('work', 'normal')";
    service.queue = i32::try_from(service.one(queue).await).unwrap();
    service
}

/// Tasks that wait, with indexes of their usual height.
async fn fill(service: &Service) {
    let fill = format!(
        "select count(tuskline.schedule_many(array_fill('work'::text, array[1000]),
                        array_fill(to_json(repeat('x', 100)), array[1000])))
           from generate_series(1, {TASKS} / 1000)"
    );
    service.run("service", &fill).await;
    service.client.batch_execute("vacuum analyze").await.unwrap();
}

#[tokio::test]
async fn rights_cost_nothing_before_the_first_and_little_afterwards() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    let service = service(&server, 1).await;
    fill(&service).await;
    let show = "grant usage on schema tuskline_core to service;
                grant select on tuskline_core.all_tasks to service";
    service.run("owner", show).await;
    let bare = service.pages(&LATEST.replace("tuskline.", "tuskline_core.all_")).await;
    let mut lines = Vec::new();
    let mut unused = Vec::new();
    for call in &CALLS {
        let cost = service.cost(call).await;
        unused.push(cost);
        lines.push((cost.is_within(&call.unused), call.line(cost)));
    }
    let pages = service.pages(LATEST).await;
    lines.push((pages <= bare, format!("the latest 50 tasks: {pages} pages, by no view {bare}")));
    service.run("owner", CLOSE).await;
    for (call, unused) in CALLS.iter().zip(unused) {
        let cost = service.cost(call).await;
        lines
            .push((cost.is_within(&(unused + call.added)), format!("closed: {}", call.line(cost))));
    }
    let pages = service.pages(LATEST).await;
    lines.push((pages <= bare + bare / 10, format!("closed: the latest 50 tasks: {pages} pages")));
    check(lines);
}

/// Prints all lines. Fails with those that are above their bounds.
fn check(lines: Vec<(bool, String)>) {
    for (_, line) in &lines {
        println!("{line}");
    }
    let found: Vec<String> =
        lines.into_iter().filter(|(within, _)| !within).map(|(_, line)| line).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Lambdas, each with a role of its own.
const LAMBDAS: i32 = 300;

/// Rights on the lambdas of other roles: 99 in all, then 1,000.
const FEW: &str = "
    select count(tuskline.grant_lambda('other_' || n, 'role_' || n, 'own'))
      from generate_series(2, 97) n";
const MANY: &str = "
    select count(tuskline.grant_lambda('other_' || n, 'role_' || n, 'own'))
      from generate_series(98, 300) n;
    select count(tuskline.grant_lambda('other_' || n, 'role_' || n % 300 + 1, 'schedule', 'work', 'inspect'))
      from generate_series(2, 234) n";

/// The rights of the service belong to a role that it inherits.
const INHERIT: &str = "
    select tuskline.revoke_lambda('work', 'service', 'schedule', 'work', 'inspect'),
           tuskline.grant_lambda('work', 'role_1', 'schedule', 'work', 'inspect')";

/// Pages that a right by inheritance adds to a call: it reads each grant on the lambda, and roles.
const INHERITED: i64 = 16;

#[tokio::test]
async fn a_call_costs_the_same_with_the_rights_of_many_other_roles() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    let service = service(&server, LAMBDAS).await;
    fill(&service).await;
    let roles = format!(
        "do $$ begin
           for n in 1..{LAMBDAS} loop execute format('create role role_%s', n); end loop;
         end $$"
    );
    service.client.batch_execute(&roles).await.unwrap();
    let member = |of: i32| {
        format!(
            "select string_agg('grant role_' || n || ' to service', '; ') from generate_series(1, {of}) n"
        )
    };
    let claim = format!(
        "select tuskline.claim({}, array[{}], '{{0}}', '{{1}}', '{{1}}')",
        service.executor, service.queue
    );
    let mut lines = Vec::new();
    let mut first = None;
    for (grants, of, sql) in [
        (4, 0, CLOSE),
        (100, 0, FEW),
        (1_000, 0, MANY),
        (1_000, 1, INHERIT),
        (1_000, 300, "select"),
    ] {
        service.run("owner", sql).await;
        if of > 0 {
            let grant: String = service.client.query_one(&member(of), &[]).await.unwrap().get(0);
            service.client.batch_execute(&grant).await.unwrap();
        }
        let schedule = service.pages(&service.statement(&CALLS[0]).await).await;
        let claim = service.pages(&claim).await;
        let barred = service.pages("select tuskline.barred('work')").await;
        let line = format!(
            "{grants} grants, {of} roles inherited: schedule {schedule} pages, claim {claim}, barred {barred}"
        );
        let inherited = if of > 0 { INHERITED } else { 0 };
        let least: &(i64, i64) = first.get_or_insert((schedule, claim));
        let within =
            schedule <= least.0 + inherited && claim <= least.1 + 1 && barred <= 3 + grants / 40;
        lines.push((within, line));
    }
    lines.push(plan_of_barred(&service).await);
    check(lines);
}

/// The query of `barred` compares no lambda with each other one.
async fn plan_of_barred(service: &Service) -> (bool, String) {
    let body = "select substring(prosrc from 'return array\\((.*)\\);') from pg_proc
                 where oid = 'tuskline.barred(text)'::regprocedure";
    let body: String = service.client.query_one(body, &[]).await.unwrap().get(0);
    let body = body.replace("p_privilege", "'work'");
    let plan = service.client.query(&format!("explain (costs off) {body}"), &[]).await.unwrap();
    let plan: Vec<&str> = plan.iter().map(|row| row.get(0)).collect();
    (!plan.iter().any(|line| line.contains("Nested Loop")), plan.join("\n"))
}
