use super::*;
use crate::db::address::Address;

fn mode(text: &str) -> Mode {
    let address: Address = text.parse().expect("an address");
    address.tls().mode_for(address.config())
}

#[test]
fn a_host_on_another_machine_must_prove_itself_unless_the_address_says_less() {
    for (text, expected) in [
        ("host=db.example", Mode::VerifyFull),
        ("host=10.0.0.7", Mode::VerifyFull),
        ("host=db", Mode::VerifyFull),
        ("host=localhost", Mode::Prefer),
        ("host=127.0.0.1", Mode::Prefer),
        ("host=::1", Mode::Prefer),
        ("host=/run/postgresql", Mode::Disable),
        ("host=/run/postgresql sslmode=require", Mode::Disable),
        ("host=db.example hostaddr=127.0.0.1", Mode::Prefer),
        ("host=localhost hostaddr=10.0.0.7", Mode::VerifyFull),
        ("host=db.example sslmode=disable", Mode::Disable),
        ("host=db.example sslmode=prefer", Mode::Prefer),
        ("host=db.example sslmode=require", Mode::Require),
        ("host=db.example sslmode=require sslrootcert=/a", Mode::VerifyCa),
        ("host=db.example sslrootcert=/a", Mode::VerifyFull),
        ("host=localhost sslrootcert=/a", Mode::VerifyFull),
        ("host=localhost sslnegotiation=direct", Mode::VerifyFull),
    ] {
        assert_eq!(mode(text), expected, "{text}");
    }
}

#[test]
fn a_configuration_of_tokio_postgres_counts_by_its_mode() {
    for (text, expected) in [
        ("host=db.example sslmode=disable", Mode::Disable),
        ("host=db.example", Mode::VerifyFull),
        ("host=db.example sslmode=require", Mode::VerifyFull),
        ("host=localhost", Mode::Prefer),
    ] {
        let config: Config = text.parse().expect("a configuration");
        let address = Address::from(config);
        assert_eq!(address.tls().mode_for(address.config()), expected, "{text}");
    }
}

#[test]
fn tls_to_an_address_without_a_name_is_verified_by_the_address() {
    let mut config: Config = "hostaddr=10.0.0.7".parse().expect("a configuration");
    TlsSettings::apply(Mode::VerifyFull, &mut config);
    assert_eq!(config.get_hosts(), [Host::Tcp("10.0.0.7".to_owned())]);
}
