//! The remedies: for each problem the page that explains it and the command that helps.
//!
//! Promises: a finding takes its remedy from this list. `tests/it/surface/doctor.rs` reads the list and checks
//! that each page and each command exists. `{name}` is filled in by [`Remedy::with`].
//! Must never: run a command.

use std::borrow::Cow;

/// A page of the book, with an anchor, and a command: `tuskline`, SQL or a program of the system.
#[derive(Debug, Clone)]
pub struct Remedy {
    page: &'static str,
    command: Cow<'static, str>,
}

impl Remedy {
    /// With a value in place of `{name}`.
    pub fn with(self, name: &str, value: &str) -> Self {
        let command = self.command.replace(&format!("{{{name}}}"), value).into();
        Self { command, ..self }
    }

    pub fn parts(self) -> (&'static str, Cow<'static, str>) {
        (self.page, self.command)
    }
}

macro_rules! remedies {
    ($($name:ident: $page:literal, $command:literal;)*) => {
        // The command line verifies, the pages do not.
        $(#[cfg_attr(not(feature = "cli"), allow(dead_code))]
          pub const $name: Remedy = Remedy { page: $page, command: Cow::Borrowed($command) };)*
    };
}

remedies! {
    // The server and the connection to it.
    UPGRADE_SERVER: "docs/postgresql.md#what-it-needs", "pg_upgrade --check";
    PRIMARY: "docs/operations.md#addresses-and-poolers",
        "tuskline doctor --database-url 'postgresql://A,B/DATABASE?target_session_attrs=read-write'";
    WRITABLE: "docs/shared-database.md#settings",
        "alter database {database} set default_transaction_read_only = off";
    DIRECT: "docs/connections.md#behind-a-pooler",
        "tuskline serve --database-url postgresql://USER@HOST:5432/DATABASE";
    NOTIFICATIONS: "docs/connections.md#behind-a-pooler", "select pg_notification_queue_usage()";
    CLOCK: "docs/doctor.md#the-server", "timedatectl set-ntp true";
    CONNECTIONS: "docs/connections.md#how-many", "alter system set max_connections = {connections}";

    // The schema.
    MIGRATE: "docs/operations.md#three-kinds-of-process", "tuskline migrate";
    UPDATE: "docs/install.md#upgrade", "tuskline --version";
    REPAIR: "docs/repair.md#repair-it", "tuskline repair";
    SERVE: "docs/operations.md#three-kinds-of-process", "tuskline serve";
    ORDINARY_OWNER: "docs/roles.md#the-owner-of-the-schema", "alter role {owner} nosuperuser";
    OTHER_DATABASE_OWNER: "docs/roles.md#the-owner-of-the-schema",
        "alter database {database} owner to ROLE";
    REVOKE: "docs/rights.md#take-a-right-away",
        "select tuskline.revoke_lambda({lambda}, {role}, {privilege})";
    TEAM: "docs/rights.md#close-a-lambda", "select tuskline.grant_lambda({lambda}, 'TEAM', 'own')";
    SCHEDULES: "docs/periodic.md#look-pause-remove", "tuskline periodic list";

    // Tasks and leases.
    BLOCKED: "docs/ordering.md#when-a-task-fails-for-good", "tuskline order blocked";
    CANCEL: "docs/workers.md#cancellation-and-timeouts", "tuskline task cancel {task}";
    SPENT_LEASE: "docs/doctor.md#leases", "select tuskline.release_lease({executor}, {lease})";
    FIND_STALLED: "docs/doctor.md#verify",
        "select s.* from tuskline.segments_in_use() n, tuskline.find_stalled(n) s";
    EXPLAIN: "docs/doctor.md#verify", "select * from tuskline.explain({task})";
    FENCES: "docs/doctor.md#verify",
        "select setval('tuskline.fence_seq', (select max(fence) from tuskline.tasks))";

    // Space.
    VACUUM: "docs/doctor.md#bloat", "vacuum {table}";
    ARCHIVE: "docs/retention.md#archive", "tuskline serve --archive-dir DIR";
    BUSY_SEGMENT: "docs/doctor.md#segments",
        "select * from tuskline.queues where depth > 0 and live_workers = 0";
    SHORTER: "docs/retention.md",
        "select tuskline.alter_lambda({lambda}, p_retention => '1 day')";

    DRAWN_IDS: "docs/shared-database.md#ids",
        "select usename, count(*) from pg_stat_activity where backend_xid is not null group by 1";

    // Sessions and the horizon.
    LOCKED: "docs/doctor.md#locks",
        "select pid, relation::regclass, mode from pg_locks where granted and mode like '%Exclusive%'";
    SEE_SESSIONS: "docs/metrics.md#the-owner-of-the-schema", "grant pg_read_all_stats to {owner}";
    END_BLOCKER: "docs/doctor.md#locks", "select pg_terminate_backend({pid})";
    END_SESSION: "docs/doctor.md#horizon", "select pg_terminate_backend({pid})";
    END_STRANGER: "docs/shared-database.md#locks", "select pg_terminate_backend({pid})";
    ROLLBACK_PREPARED: "docs/doctor.md#horizon", "rollback prepared {gid}";
    LIST_PREPARED: "docs/doctor.md#horizon", "select * from pg_prepared_xacts order by prepared";
    DROP_SLOT: "docs/doctor.md#horizon", "select pg_drop_replication_slot({slot})";
    END_SLOT: "docs/doctor.md#horizon",
        "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = {slot}";
    FEEDBACK: "docs/doctor.md#horizon",
        "alter system set hot_standby_feedback = off; select pg_reload_conf()";

    // Settings.
    ORIGIN: "docs/shared-database.md#settings",
        "alter database {database} reset session_replication_role";
    FSYNC: "docs/postgresql.md#settings-that-matter",
        "alter system set fsync = on; select pg_reload_conf()";
    FULL_PAGES: "docs/postgresql.md#settings-that-matter",
        "alter system set full_page_writes = on; select pg_reload_conf()";
    COMMIT: "docs/postgresql.md#settings-that-matter",
        "alter system set synchronous_commit = on; select pg_reload_conf()";
    AUTOVACUUM: "docs/postgresql.md#settings-that-matter",
        "alter system set autovacuum = on; select pg_reload_conf()";
    COUNTS: "docs/postgresql.md#settings-that-matter",
        "alter system set track_counts = on; select pg_reload_conf()";
    IDLE: "docs/postgresql.md#settings-that-matter",
        "alter database {database} set idle_in_transaction_session_timeout = '5min'";
    BUFFERS: "docs/postgresql.md#settings-that-matter", "alter system set shared_buffers = '1GB'";
    WAL_SIZE: "docs/postgresql.md#settings-that-matter",
        "alter system set max_wal_size = '4GB'; select pg_reload_conf()";
}
