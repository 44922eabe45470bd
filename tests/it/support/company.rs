//! A company of two teams that share a database: roles, rights, and tasks of one team with a secret.
//!
//! The schema's owner is an ordinary role, as rights need it. In a text of SQL `<shop>` stands for
//! the name of a role, and `<dead>` for a number of the victim's.

use std::collections::BTreeMap;

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::cluster::superuser;
use super::{Db, refusal, within};

/// A secret of the team of payments. It stands in payloads, keys, results and errors.
pub const SECRET: &str = "pan-4711";

/// The roles: the groups and the role of which each is a member.
const ROLES: [(&str, &[&str], &str); 14] = [
    ("team_mail", &["team"], ""),
    ("team_pay", &["team"], ""),
    ("mail_deploy", &[], "team_mail"),
    ("pay_deploy", &["scheduler"], "team_pay"),
    ("shop", &["scheduler"], ""),
    ("mailer", &["worker"], ""),
    ("biller", &["worker", "scheduler"], ""),
    ("oncall", &["operator"], ""),
    ("auditor", &["viewer"], ""),
    ("viewer", &["viewer"], ""),
    ("nagios", &["monitor"], ""),
    // A role that may execute every verb of every group, and has no right.
    ("rival", &["scheduler", "worker", "operator", "team"], ""),
    ("gateway", &[], ""),
    ("stranger", &[], ""),
];

/// Lambdas, and rights on them. `charge_card` is the victim's; nobody owns `open_one`.
const RIGHTS: &str = "
    select tuskline.define_lambda('send_email'), tuskline.define_lambda('charge_card'),
           tuskline.define_lambda('open_one');
    select tuskline.set_unique('charge_card', 'queued', 'replace'), tuskline.set_order('charge_card');
    select tuskline.define_periodic('pay_daily', 'charge_card', '0 5 * * *', '{\"secret\":\"pan-4711\"}');
    select tuskline.grant_lambda('send_email', '<shop>', 'schedule'),
           tuskline.grant_lambda('send_email', '<mailer>', 'work'),
           tuskline.grant_lambda('send_email', '<team_mail>', 'own');
    select tuskline.grant_lambda('charge_card', '<biller>', 'schedule', 'work'),
           tuskline.grant_lambda('charge_card', '<team_pay>', 'own');
    select tuskline.grant_lambda('*', '<oncall>', 'operate'),
           tuskline.grant_lambda('*', '<auditor>', 'inspect')";

/// The victim's tasks: one that is replaceable, one of an ordering key, and one in each state.
const TASKS: &str = r#"
    create temp table fact (name text, value bigint);
    do $$ declare
      s constant text := '{"secret":"pan-4711"}';
      worker bigint; other bigint; queues integer[]; lease bigint; gate bigint; operation bigint;
      waiting bigint; later bigint; good bigint; dead bigint; retried bigint; held bigint;
      child bigint; mail bigint;
    begin
      perform set_config('role', '<biller>', true);
      worker := tuskline.register_executor('host', 1, '{charge_card}', 'sdk', '1 hour');
      queues := array(select q.queue_id from tuskline.executor_lambdas('{charge_card}') q order by 1);
      waiting := tuskline.schedule('charge_card', s, p_delay => '1 hour', p_unique_key => 'cust-1');
      later := tuskline.schedule('charge_card', s, p_delay => '1 hour', p_ordering_key => 'cust-2');
      good := tuskline.schedule('charge_card', s);
      dead := tuskline.schedule('charge_card', s);
      retried := tuskline.schedule('charge_card', s);
      held := tuskline.schedule('charge_card', s);
      select c.lease_id into lease
        from tuskline.claim(worker, queues, '{0,0,0,0}', '{1,1,1,1}', '{10}') c;
      perform tuskline.set_progress(held, lease, 10, 'pan-4711', s::json);
      perform tuskline.set_results(worker, null, null, json_build_array(
        json_build_object('task', good, 'fence', lease, 'status', 'success', 'output', s::json),
        json_build_object('task', dead, 'fence', lease, 'status', 'fatal_failure',
                          'error_class', 'bad', 'message', 'pan-4711'),
        json_build_object('task', retried, 'fence', lease, 'status', 'retriable_failure',
                          'error_class', 'bad', 'message', 'pan-4711')));
      perform tuskline.schedule('charge_card', s);
      perform set_config('role', '<pay_deploy>', true);
      perform tuskline.set_breaker('charge_card', 1);
      child := tuskline.schedule_then(array[good], 'charge_card');
      gate := tuskline.gate('charge_card', 'pause', p_reason => 'circuit breaker: bad: pan-4711');
      operation := tuskline.start_operation('cancel', 'charge_card', p_key => 'pan-4711', p_reason => 'x');
      perform set_config('role', '<shop>', true);
      mail := tuskline.schedule('send_email', '{"to":"a@b"}');
      perform set_config('role', '<mailer>', true);
      other := tuskline.register_executor('host', 2, '{send_email}', 'sdk', '1 hour');
      perform set_config('role', 'none', true);
      insert into fact
      select u.* from unnest(
        '{worker,other,lease,gate,operation,waiting,later,good,dead,retried,held,child,mail,first,last,limit,mails}'::text[],
        array[worker, other, lease, gate, operation, waiting, later, good, dead, retried, held, child,
              mail, queues[1], queues[3],
              (select r.limit_id from tuskline.task_limit r where r.lambda = 'charge_card'),
              (select q.queue_id from tuskline.queue q where q.lambda = 'send_email' and q.priority = 'normal')]) u;
    end $$;"#;

/// Reads each view.
const VIEWS: &str = "select string_agg(format('select * from %s', c.oid::regclass), '; ')
                       from pg_class c
                      where c.relnamespace = 'tuskline'::regnamespace and c.relkind = 'v'";

/// All that belongs to the victim, a line a row.
const STATE: &str = "
    with ours as (select t.id from tuskline.task t where t.lambda = 'charge_card'),
         workers as (select e.executor_id from tuskline.executor e where e.lambdas = '{charge_card}')
    select 'task ' || t::text from tuskline.task t where t.lambda <> 'send_email' and t.lambda <> 'open_one'
    union all select 'gate ' || g::text from tuskline.gate g
    union all select 'limit ' || r::text from tuskline.task_limit r
    union all select 'wait_list ' || l::text from tuskline.wait_list l where l.task_id in (select id from ours)
    union all select 'timer ' || m::text from tuskline.timer m where m.task_id in (select id from ours)
    union all select 'lambda ' || l::text from tuskline.lambda l
    union all select 'definition ' || d::text from tuskline.definition d
    union all select 'queue ' || q::text from tuskline.queue q
    union all select 'grant ' || g::text from tuskline.lambda_grant g
    union all select 'executor ' || e::text from tuskline.executor e where e.executor_id in (select executor_id from workers)
    union all select 'live ' || e::text from tuskline_core.live_executor e where e.executor_id in (select executor_id from workers)
    union all select 'lease ' || l::text from tuskline.lease l where l.executor_id in (select executor_id from workers)
    union all select 'failure ' || f::text from tuskline.task_failure f
    union all select 'output ' || o::text from tuskline.task_output o
    union all select 'progress ' || p::text from tuskline.progress p
    union all select 'cancellation ' || c::text from tuskline.cancellation c
    union all select 'periodic ' || p::text from tuskline.periodic p
    union all select 'unique_key ' || k::text from tuskline.unique_key k
    union all select 'unique_policy ' || p::text from tuskline.unique_policy p
    union all select 'breaker ' || b::text from tuskline.breaker b
    union all select 'dead_letter ' || d::text from tuskline.dead_letter d
    union all select 'operation ' || o::text from tuskline.operation o
    union all select 'chain ' || c::text from tuskline.chain_task c
    union all select 'dependency ' || d::text from tuskline.dependency d
    union all select 'awaited ' || a::text from tuskline_core.awaited a
    union all select 'counts ' || c::text from tuskline_core.attempt_count c
    union all select 'audit ' || count(*) from tuskline.audit a
    order by 1";

/// The end of a statement: done with an output, or refused.
#[derive(Debug)]
pub struct Ended {
    /// The SQLSTATE of the refusal. None: it was done.
    pub state: Option<String>,
    /// The refusal, or the values of all rows.
    pub said: String,
}

/// The database of the company.
pub struct Company {
    pub db: Db,
    names: BTreeMap<String, String>,
}

impl Company {
    /// Roles and their verbs, and no right.
    pub async fn of_roles() -> Self {
        let db = Db::owned().await;
        let name = db.config.get_dbname().unwrap().to_owned();
        let mut names = BTreeMap::new();
        for (role, groups, team) in ROLES {
            let full = format!("{role}_{name}");
            let inherit = if role == "gateway" { "noinherit" } else { "" };
            db.run(&format!("create role {full} login {inherit}; grant {full} to current_user"))
                .await;
            for group in groups {
                db.run(&format!("grant tuskline_{group} to {full}")).await;
            }
            if !team.is_empty() {
                db.run(&format!("grant {team}_{name} to {full}")).await;
            }
            names.insert(role.to_owned(), full);
        }
        db.run(&format!("grant shop_{name}, biller_{name} to gateway_{name}")).await;
        Self { db, names }
    }

    /// The same with rights and tasks.
    pub async fn at_work() -> Self {
        let mut company = Self::of_roles().await;
        company.run(RIGHTS).await;
        company.run(TASKS).await;
        let facts =
            company.db.client.query("select name, value::text from fact", &[]).await.unwrap();
        company.names.extend(facts.iter().map(|row| (row.get(0), row.get(1))));
        company.names.insert("views".to_owned(), company.db.one(VIEWS).await);
        company
    }

    /// A text with the names of roles and the numbers of the victim.
    pub fn filled(&self, sql: &str) -> String {
        let all = self.names.iter();
        all.fold(sql.to_owned(), |sql, (name, value)| sql.replace(&format!("<{name}>"), value))
    }

    /// Runs statements of the schema's owner that must succeed.
    pub async fn run(&self, sql: &str) {
        self.db.run(&self.filled(sql)).await;
    }

    /// Runs statements of a role that must succeed, in a session of its own.
    pub async fn run_as(&self, role: &str, sql: &str) {
        let ended = self.attempt(role, sql).await;
        assert_eq!(ended.state, None, "{role}: {sql}: {}", ended.said);
    }

    /// The refusal of statements of a role, which must be refused.
    pub async fn refused_as(&self, role: &str, sql: &str) -> String {
        let ended = self.attempt(role, sql).await;
        assert!(ended.state.is_some(), "{role}: {sql}: {}", ended.said);
        ended.said
    }

    /// Runs statements in a new session of a role.
    pub async fn attempt(&self, role: &str, sql: &str) -> Ended {
        self.attempt_on(&self.login(role).await, sql).await
    }

    /// The same in a session that is there.
    pub async fn attempt_on(&self, session: &Client, sql: &str) -> Ended {
        match within(session.simple_query(&self.filled(sql))).await {
            Ok(messages) => Ended { state: None, said: messages.iter().map(values).collect() },
            Err(error) => Ended {
                state: error.code().map(|code| code.code().to_owned()),
                said: refusal(&error),
            },
        }
    }

    /// A session of a role, or of the cluster's superuser.
    pub async fn login(&self, role: &str) -> Client {
        let mut config = self.db.config.clone();
        config.user(self.names.get(role).map_or(superuser(), String::as_str));
        let (client, connection) = within(config.connect(NoTls)).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("set statement_timeout = '15s'").await.unwrap();
        client
    }

    /// All that belongs to the victim.
    pub async fn state(&self) -> Vec<String> {
        self.db.all(STATE).await
    }
}

/// The values of a row, apart by spaces.
fn values(message: &SimpleQueryMessage) -> String {
    let SimpleQueryMessage::Row(row) = message else { return String::new() };
    (0..row.len()).map(|at| format!("{} ", row.get(at).unwrap_or("-"))).collect()
}
