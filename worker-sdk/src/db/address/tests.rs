use super::*;

fn read(text: &str) -> Address {
    text.parse().expect("an address")
}

fn refused(text: &str) -> String {
    text.parse::<Address>().expect_err("no address").to_string()
}

#[test]
fn the_options_of_tls_are_taken_out_of_both_forms() {
    let url = read(
        "postgresql://me@db.example/shop?sslmode=verify-ca&sslrootcert=%2Fa%20b&options=-cx%3D1",
    );
    let pairs = read(
        r"host=db.example port=5432 user=me dbname=shop sslmode = verify-ca sslrootcert='/a b' options=-cx=1",
    );
    assert_eq!(url, pairs);
    assert_eq!(url.config().get_options(), Some("-cx=1"));
    let given: Vec<_> = url.tls_environment();
    let expected = [("PGSSLMODE", "verify-ca"), ("PGSSLROOTCERT", "/a b")];
    assert_eq!(given, expected.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn a_quoted_value_keeps_its_quotes_and_backslashes() {
    let address = read(r"host=x password='a\'b\\c d' sslmode=disable");
    assert_eq!(address.config().get_password(), Some(br"a'b\c d".as_slice()));
}

#[test]
fn a_question_mark_in_a_password_is_not_the_begin_of_the_options() {
    let address = read("postgresql://me:pa?sslmode=x@db.example/shop?sslmode=disable");
    assert_eq!(address.config().get_password(), Some(b"pa?sslmode=x".as_slice()));
}

#[test]
fn no_error_quotes_the_address() {
    for (text, expected) in [
        ("postgresql://me:s3cret@[oops", "the address is not understood, give postgresql://"),
        (
            "postgresql://me:s3cret@db/shop?pgbouncer=true",
            "the address is not understood: unknown option `pgbouncer`",
        ),
        ("host=x password='s3cret", "the address is not understood"),
        (
            "postgresql://me:s3cret@db/shop?sslmode=allow",
            "sslmode must be disable, prefer, require, verify-ca or verify-full, got \"allow\": instead of allow, use prefer",
        ),
        ("host=x sslmode=verify-ca", "sslmode=verify-ca needs sslrootcert=FILE"),
        (
            "host=x sslmode=require sslrootcert=system",
            "sslrootcert=system needs sslmode=verify-full, it is require",
        ),
        ("host=x sslcert=a", "sslcert needs sslkey"),
        ("host=x sslkey=a", "sslkey needs sslcert"),
        (
            "host=x sslmode=prefer sslnegotiation=direct",
            "sslnegotiation=direct needs sslmode=require or stronger, it is prefer",
        ),
        ("host=x sslnegotiation=gss", "sslnegotiation must be postgres or direct, got \"gss\""),
        (
            "host=x channel_binding=yes",
            "channel_binding must be disable, prefer or require, got \"yes\"",
        ),
        ("host=x sslmode=disable channel_binding=require", "channel_binding=require needs TLS"),
    ] {
        let refusal = refused(text);
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }
}

#[test]
fn the_options_of_libpq_are_read_or_refused_by_name() {
    let address = read(
        "host=x gssencmode=disable client_encoding=utf-8 fallback_application_name=till keepalives_count=7 \
         target_session_attrs=primary",
    );
    assert_eq!(address.config().get_application_name(), Some("till"));
    assert_eq!(address.config().get_keepalives_retries(), Some(7));
    assert_eq!(address.config().get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    let named = read("host=x application_name=a fallback_application_name=b");
    assert_eq!(named.config().get_application_name(), Some("a"));
    for (text, expected) in [
        ("host=x gssencmode=require", "gssencmode must be disable, got \"require\": GSSAPI is not"),
        ("host=x client_encoding=latin1", "client_encoding must be UTF8, got \"latin1\""),
        (
            "host=x target_session_attrs=prefer-standby",
            "target_session_attrs=prefer-standby is not",
        ),
        ("host=x sslcrl=a sslmode=require", "sslcrl needs sslmode=verify-ca or verify-full"),
        ("host=x ssl_max_protocol_version=TLSv1.1", "ssl_max_protocol_version must be TLSv1.2 or"),
        (
            "host=x ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
            "ssl_min_protocol_version is newer than ssl_max_protocol_version",
        ),
        ("postgresql://x/y?service=a", "the option service is not supported: give the options"),
        ("host=x requirepeer=me", "the option requirepeer is not supported: the owner"),
        ("host=x passfile=/absent/file", "the password file /absent/file cannot be read"),
    ] {
        let refusal = refused(text);
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
}

#[test]
fn the_environment_counts_where_the_address_says_nothing() {
    let set = |name: &str| {
        let value = match name {
            "PGHOST" => "a,/run/b",
            "PGPORT" => "1,2",
            "PGUSER" => "me",
            "PGDATABASE" => "shop",
            "PGPASSWORD" => "secret",
            "PGOPTIONS" => "-cx=1",
            "PGAPPNAME" => "till",
            "PGCONNECT_TIMEOUT" => "3",
            "PGTARGETSESSIONATTRS" => "read-write",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let mut config = Config::new();
    complete(&mut config, set).expect("an address");
    let expected: Config =
        "host=a,/run/b port=1,2 user=me dbname=shop password=secret options=-cx=1 \
                        application_name=till connect_timeout=3 target_session_attrs=read-write"
            .parse()
            .expect("an address");
    assert_eq!(config, expected);
    let full: Config = "host=x port=9 user=u dbname=d password=p options=-cy=2 application_name=n \
                        connect_timeout=7 target_session_attrs=read-only"
        .parse()
        .expect("an address");
    let mut kept = full.clone();
    complete(&mut kept, set).expect("an address");
    assert_eq!(kept, full);
    let mut none = Config::new();
    complete(&mut none, |_| None).expect("an address");
    assert_eq!(none, "host=localhost".parse().expect("an address"));
    for name in ["PGPORT", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS"] {
        let wrong = |asked: &str| (asked == name).then(|| "x".to_owned());
        let refusal = complete(&mut Config::new(), wrong).expect_err(name).to_string();
        assert_eq!(refusal, format!("{name} is not understood: \"x\""));
    }
}
