//! TLS to the server: the modes that are accepted, and what a user reads when one is refused.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use tuskline_postgres::Cluster;
use tuskline_sdk::{Address, Client};

use crate::support::cli::tuskline;
use crate::support::{settings, within};

/// The host that the certificates name. It is reached at 127.0.0.1 by `hostaddr`.
const HOST: &str = "db.example.com";

/// A certificate of X.509 v1 and its key, valid for a hundred years. rcgen makes v3 only.
const VERSION_1: [&str; 2] =
    [include_str!("certificates/v1.crt"), include_str!("certificates/v1.key")];

/// An authority that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate and its key, as PEM.
    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// The list of revoked certificates, with one of this number.
    fn revoke(&self, number: u64) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(number),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A server with TLS, certificates that it can change to, and files for clients.
struct Stage {
    cluster: Cluster,
    port: u16,
    files: tempfile::TempDir,
}

impl Stage {
    /// None: the server is built without TLS.
    async fn set() -> Option<Self> {
        let (ours, other) = (Authority::new("our authority"), Authority::new("another authority"));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Cluster::temporary_on(settings(), Some(port)).await.unwrap();
        let stage = Self { cluster, port, files: tempfile::tempdir().unwrap() };
        if stage.ask("show ssl_library").await.is_empty() {
            eprintln!("skipped: this PostgreSQL is built without TLS");
            return None;
        }
        let mut expired = named("expired", &[HOST]);
        expired.not_after = date_time_ymd(2020, 1, 1);
        let mut number_7 = named("server", &[HOST]);
        number_7.serial_number = Some(SerialNumber::from(7));
        let mut future = named("future", &[HOST]);
        future.not_before = date_time_ymd(2090, 1, 1);
        future.not_after = date_time_ymd(2099, 1, 1);
        for (name, (certificate, key)) in [
            ("good", ours.sign(&named("server", &[HOST]))),
            ("wrong_host", ours.sign(&named("server", &["other.example.com"]))),
            ("expired", ours.sign(&expired)),
            ("future", ours.sign(&future)),
            ("other", other.sign(&named("server", &[HOST]))),
            ("self_signed", self_signed()),
            ("number_7", ours.sign(&number_7)),
            ("v1", VERSION_1.map(str::to_owned).into()),
        ] {
            stage.cluster.put(&format!("{name}.crt"), &certificate).unwrap();
            stage.cluster.put(&format!("{name}.key"), &key).unwrap();
        }
        stage.cluster.put("ca.crt", &ours.pem).unwrap();
        stage.cluster.put("revoked.crl", &ours.revoke(7)).unwrap();
        stage.cluster.put("none.crl", &ours.revoke(8)).unwrap();
        let mut revoked = named("tuskline", &[]);
        revoked.serial_number = Some(SerialNumber::from(7));
        let (client, revoked) = (ours.sign(&named("tuskline", &[])), ours.sign(&revoked));
        for (name, text) in [
            ("ca.pem", &ours.pem),
            ("client.crt", &client.0),
            ("client.key", &client.1),
            ("revoked.crt", &revoked.0),
            ("revoked.key", &revoked.1),
            ("no_pem.txt", &"hello".to_owned()),
            ("v1.crt", &VERSION_1[0].to_owned()),
            ("v1.key", &VERSION_1[1].to_owned()),
            ("revoked.crl", &ours.revoke(7)),
            ("none.crl", &ours.revoke(8)),
            ("other.crl", &other.revoke(8)),
        ] {
            std::fs::write(stage.file(name), text).unwrap();
        }
        stage.admit("hostssl all all all scram-sha-256").await;
        stage.server("good", &[]).await;
        Some(stage)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Changes the certificate of the server, and other settings.
    async fn server(&self, certificate: &str, changed: &[(&str, &str)]) {
        let mut set = vec![
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", format!("{certificate}.crt")),
            ("ssl_key_file", format!("{certificate}.key")),
            ("ssl_ca_file", "ca.crt".to_owned()),
            ("ssl_crl_file", "none.crl".to_owned()),
            ("ssl_min_protocol_version", "TLSv1.2".to_owned()),
            ("ssl_max_protocol_version", String::new()),
        ];
        for (name, value) in changed {
            set.retain(|(known, _)| known != name);
            set.push((name, (*value).to_owned()));
        }
        for (name, value) in set {
            self.run(&format!("alter system set {name} = '{value}'")).await;
        }
        self.reload().await;
    }

    /// Replaces the lines for TCP of `pg_hba.conf`.
    async fn admit(&self, line: &str) {
        let text = format!("local all all trust\n{line}\n");
        self.cluster.put("pg_hba.conf", &text).unwrap();
        self.reload().await;
    }

    /// A new session has the settings of a postmaster that has read them all.
    async fn reload(&self) {
        let before: String = self.ask("select pg_conf_load_time()::text").await;
        self.run("select pg_reload_conf()").await;
        loop {
            let now: String = self.ask("select pg_conf_load_time()::text").await;
            if now != before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn run(&self, sql: &str) {
        self.session().await.batch_execute(sql).await.unwrap();
    }

    async fn ask(&self, sql: &str) -> String {
        self.session().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn session(&self) -> tokio_postgres::Client {
        let config = self.cluster.config("postgres");
        let (client, connection) = within(config.connect(tokio_postgres::NoTls)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// The address with these options.
    fn url(&self, options: &str) -> String {
        let url = self.cluster.tcp_url("postgres").unwrap();
        let url = url.replace("@127.0.0.1:", &format!("@{HOST}:"));
        let dir = self.files.path().display();
        let options = options.replace("DIR", &dir.to_string());
        format!("{url}?hostaddr=127.0.0.1&{options}")
    }

    /// The lines that a user sees.
    fn refusal(&self, options: &str) -> String {
        let ran = tuskline(&["doctor"]).database(&self.url(options)).run();
        assert_ne!(ran.code, 0, "{options}: {}", ran.out);
        ran.err
            .replace(&self.files.path().display().to_string(), "DIR")
            .replace(&self.port.to_string(), "PORT")
    }

    /// The protocol and the cipher of a session with these options.
    async fn accepted(&self, options: &str) -> String {
        let address: Address = self.url(options).parse().unwrap();
        let client = within(tuskline::session::Session::plain(&address, "test")).await.unwrap();
        let sql = "select ssl::text || ' ' || coalesce(version, '-') from pg_stat_ssl
                    where pid = pg_backend_pid()";
        client.client().query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn self_signed() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (named("server", &[HOST]).self_signed(&key).unwrap().pem(), key.serialize_pem())
}

const TRUSTED: &str = "sslmode=verify-full&sslrootcert=DIR/ca.pem";

#[tokio::test]
async fn each_mode_connects_to_a_server_that_proves_itself() {
    let Some(stage) = Stage::set().await else { return };
    for options in [
        TRUSTED,
        "sslrootcert=DIR/ca.pem",
        "sslmode=verify-ca&sslrootcert=DIR/ca.pem",
        "sslmode=require&sslrootcert=DIR/ca.pem",
        "sslmode=require",
        "sslmode=prefer",
        "sslmode=require&channel_binding=require",
        "sslmode=require&channel_binding=disable",
    ] {
        assert_eq!(stage.accepted(options).await, "true TLSv1.3", "{options}");
    }
    stage.server("good", &[("ssl_max_protocol_version", "TLSv1.2")]).await;
    assert_eq!(stage.accepted(TRUSTED).await, "true TLSv1.2");
    stage.server("wrong_host", &[]).await;
    let named = "sslmode=verify-ca&sslrootcert=DIR/ca.pem";
    assert_eq!(stage.accepted(named).await, "true TLSv1.3", "verify-ca looks at no name");
    stage.admit("hostssl all all all cert").await;
    stage.server("good", &[]).await;
    let shown = format!("{TRUSTED}&sslcert=DIR/client.crt&sslkey=DIR/client.key");
    assert_eq!(stage.accepted(&shown).await, "true TLSv1.3");
    stage.admit("host all all all scram-sha-256").await;
    stage.server("good", &[("ssl", "off")]).await;
    for options in ["sslmode=prefer", "sslmode=disable"] {
        assert_eq!(stage.accepted(options).await, "false -", "{options}");
    }
}

#[tokio::test]
async fn direct_tls_needs_postgresql_17() {
    let Some(stage) = Stage::set().await else { return };
    let version: i32 = stage.ask("show server_version_num").await.parse().unwrap();
    let direct = format!("{TRUSTED}&sslnegotiation=direct");
    if version >= 170_000 {
        assert_eq!(stage.accepted(&direct).await, "true TLSv1.3");
    } else {
        let said = stage.refusal(&direct);
        assert!(said.contains("needs PostgreSQL 17 or later"), "{said}");
    }
}

#[tokio::test]
async fn the_options_of_libpq_are_read_or_refused_by_name() {
    let Some(stage) = Stage::set().await else { return };
    for (options, version) in [
        ("gssencmode=disable&client_encoding=UTF8&fallback_application_name=x", "TLSv1.3"),
        ("ssl_min_protocol_version=TLSv1.3", "TLSv1.3"),
        ("ssl_max_protocol_version=TLSv1.2", "TLSv1.2"),
        ("sslcrl=DIR/none.crl", "TLSv1.3"),
    ] {
        let accepted = stage.accepted(&format!("{TRUSTED}&{options}")).await;
        assert_eq!(accepted, format!("true {version}"), "{options}");
    }
    let refused = stage.refusal(&format!("{TRUSTED}&sslpassword=x"));
    assert!(refused.contains("the option sslpassword is not supported: give a key"), "{refused}");
    let standby = stage.refusal(&format!("{TRUSTED}&target_session_attrs=standby"));
    assert!(standby.contains("target_session_attrs asks for a standby"), "{standby}");
}

#[tokio::test]
async fn each_refusal_names_the_setting_that_mends_it() {
    let Some(stage) = Stage::set().await else { return };
    let mut screen = String::new();
    let mut tell = |what: &str, options: &str| {
        screen.push_str(&format!("# {what}\n{options}\n{}\n", stage.refusal(options)));
    };
    tell("the root file is missing", "sslrootcert=DIR/absent.pem");
    tell("the root file is no PEM", "sslrootcert=DIR/no_pem.txt");
    tell("the authority is not one of the system", "sslmode=verify-full");
    let client = format!("{TRUSTED}&sslcert=DIR/client.crt&sslkey=DIR/revoked.key");
    tell("the key does not fit the certificate", &client);
    for (certificate, what) in [
        ("wrong_host", "the certificate names another host"),
        ("expired", "the certificate has expired"),
        ("future", "the certificate is not valid yet"),
        ("other", "another authority signed the certificate"),
        ("self_signed", "the certificate is self-signed"),
    ] {
        stage.server(certificate, &[]).await;
        tell(what, TRUSTED);
    }
    stage.server("v1", &[]).await;
    tell("the certificate is of X.509 v1", TRUSTED);
    tell("the certificate is of X.509 v1, and need prove nothing", "sslmode=require");
    stage.server("number_7", &[]).await;
    for list in ["revoked", "other", "absent"] {
        tell("a list of revoked certificates", &format!("{TRUSTED}&sslcrl=DIR/{list}.crl"));
    }
    let shown = format!("{TRUSTED}&sslcert=DIR/v1.crt&sslkey=DIR/v1.key");
    tell("the client certificate is of X.509 v1", &shown);
    stage.server("good", &[("ssl_max_protocol_version", "TLSv1.2")]).await;
    tell("the server speaks TLS 1.2", &format!("{TRUSTED}&ssl_min_protocol_version=TLSv1.3"));
    let old = [("ssl_min_protocol_version", "TLSv1"), ("ssl_max_protocol_version", "TLSv1.1")];
    stage.server("good", &old).await;
    tell("the server speaks TLS 1.1", TRUSTED);
    stage.server("good", &[("ssl_crl_file", "revoked.crl")]).await;
    stage.admit("hostssl all all all cert").await;
    tell("the client certificate is missing", TRUSTED);
    let revoked = format!("{TRUSTED}&sslcert=DIR/revoked.crt&sslkey=DIR/revoked.key");
    tell("the client certificate is revoked", &revoked);
    stage.admit("hostssl all all all trust").await;
    stage.server("good", &[]).await;
    tell("the server does not bind the channel", &format!("{TRUSTED}&channel_binding=require"));
    stage.admit("host all all all trust").await;
    stage.server("good", &[("ssl", "off")]).await;
    tell("the server has no TLS", TRUSTED);
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!("refusals", screen) });
}

#[tokio::test]
async fn the_sdk_says_the_same_as_the_command_line() {
    let Some(stage) = Stage::set().await else { return };
    stage.server("expired", &[]).await;
    let refused = within(Client::connect(&stage.url(TRUSTED))).await.unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains("the certificate of db.example.com has expired (renew it"),
        "{refused}"
    );
}
