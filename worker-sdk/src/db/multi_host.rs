//! Connecting to an address that names several hosts, one after the other.
//!
//! Promises: a host that accepts and says nothing, as a primary does that stands still while its standby is
//! promoted, takes its own share of the time, and the next is asked.
//! Must never: ask two at a time, or print an address.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::timeout;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::{Client, Config, Connection, Error, NoTls, Socket};

use crate::db::address::Address;
use crate::db::tls::refusal::explain;
use crate::db::tls::{Stream, TlsSettings};

/// Connects to the first host of an address that answers, and as its `target_session_attrs` wants: in the
/// order of the address, or in any with `load_balance_hosts=random`. `each` says how long one of so many may
/// take for its socket and its answer together, where tokio-postgres bounds the socket alone; never longer
/// than twice the `connect_timeout` of the address.
///
/// # Errors
/// The refusal of the last host, or that it gave no answer in time; an error of the address.
pub async fn connect_in_turn(
    address: &Address,
    each: impl FnOnce(u32) -> Duration,
) -> Result<(Client, Connection<Socket, Stream>), Error> {
    let config = address.config();
    let mut hosts = alone(config);
    let mut each = each(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
    if let Some(socket) = config.get_connect_timeout() {
        each = each.min(socket.saturating_mul(2));
    }
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        fastrand::shuffle(&mut hosts);
    }
    let mut asked = ask(&mut hosts[0], address.tls(), each).await;
    for host in &mut hosts[1..] {
        if asked.is_ok() {
            break;
        }
        asked = ask(host, address.tls(), each).await;
    }
    asked
}

async fn ask(
    host: &mut Config,
    tls: &TlsSettings,
    limit: Duration,
) -> Result<(Client, Connection<Socket, Stream>), Error> {
    let mode = tls.mode_for(host);
    TlsSettings::apply(mode, host);
    let connector = match tls.connector(mode) {
        Ok(connector) => connector,
        Err(refusal) => return Err(broken(io::Error::other(refusal)).await),
    };
    match timeout(limit, host.connect(connector)).await {
        Ok(Ok(connected)) => Ok(connected),
        Ok(Err(error)) => match explain(&error, host, mode, tls) {
            Some(refusal) => Err(broken(io::Error::other(refusal)).await),
            None => Err(error),
        },
        Err(_) => {
            let text = format!("no answer within {limit:?}");
            Err(broken(io::Error::new(io::ErrorKind::TimedOut, text)).await)
        }
    }
}

/// The hosts of an address, each with all else it says. One host, and what tokio-postgres will find fault
/// with, stays as it is.
fn alone(config: &Config) -> Vec<Config> {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let ports = config.get_ports();
    let count = hosts.len().max(addresses.len());
    let fit = |length| length == 0 || length == count;
    if count <= 1
        || !fit(hosts.len())
        || !fit(addresses.len())
        || !(ports.len() == 1 || fit(ports.len()))
    {
        return vec![config.clone()];
    }
    let only = |number: usize| {
        let mut one = without_hosts(config);
        match hosts.get(number) {
            Some(Host::Tcp(name)) => {
                one.host(name.as_str());
            }
            Some(Host::Unix(path)) => {
                one.host_path(path);
            }
            None => {}
        }
        if let Some(address) = addresses.get(number) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(number).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(only).collect()
}

fn without_hosts(config: &Config) -> Config {
    let mut bare = Config::new();
    bare.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    config.get_user().map(|user| bare.user(user));
    config.get_password().map(|password| bare.password(password));
    config.get_dbname().map(|name| bare.dbname(name));
    config.get_options().map(|options| bare.options(options));
    config.get_application_name().map(|name| bare.application_name(name));
    config.get_connect_timeout().map(|limit| bare.connect_timeout(*limit));
    config.get_tcp_user_timeout().map(|limit| bare.tcp_user_timeout(*limit));
    config.get_keepalives_interval().map(|interval| bare.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| bare.keepalives_retries(retries));
    bare
}

/// An error of ours as one of tokio-postgres, which makes errors of what a socket says only.
async fn broken(error: io::Error) -> Error {
    let socket = tokio::io::join(Broken(Some(error)), tokio::io::sink());
    match Config::new().user("none").connect_raw(socket, NoTls).await {
        Err(error) => error,
        Ok(_) => unreachable!("a broken socket does not answer"),
    }
}

/// A socket that fails.
struct Broken(Option<io::Error>);

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Err(self.0.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "user=a password=b dbname=c options=-cx=1 application_name=d sslmode=disable \
        sslnegotiation=direct connect_timeout=3 tcp_user_timeout=4 keepalives=0 keepalives_idle=5 \
        keepalives_interval=6 keepalives_retries=7 target_session_attrs=read-write \
        channel_binding=require load_balance_hosts=random";

    fn address(hosts: &str) -> Config {
        format!("{hosts} {REST}").parse().expect("an address")
    }

    #[test]
    fn each_host_has_its_own_port_and_all_else_the_address_says() {
        let both = address("host=x,/y hostaddr=127.0.0.1,127.0.0.2 port=1,2");
        let first = address("host=x hostaddr=127.0.0.1 port=1");
        let second = address("host=/y hostaddr=127.0.0.2 port=2");
        assert_eq!(alone(&both), [first, second]);
        assert_eq!(
            alone(&address("host=x,y port=1")),
            [address("host=x port=1"), address("host=y port=1")]
        );
        assert_eq!(alone(&address("host=x,y")), [address("host=x"), address("host=y")]);
        assert_eq!(
            alone(&address("hostaddr=127.0.0.1,127.0.0.2")),
            [address("hostaddr=127.0.0.1"), address("hostaddr=127.0.0.2")]
        );
    }

    #[test]
    fn an_address_of_one_host_or_with_a_fault_is_left_as_it_is() {
        for hosts in ["", "host=x port=1", "host=x,y hostaddr=127.0.0.1", "host=x,y port=1,2,3"] {
            assert_eq!(alone(&address(hosts)), [address(hosts)], "{hosts}");
        }
    }
}
