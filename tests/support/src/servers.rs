//! The real servers of a suite: named by the environment, reported as a skip otherwise, and checked to be reachable.
//! `deploy/servers/servers` starts them.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const REACHED_WITHIN: Duration = Duration::from_secs(10);

/// The bootstrap list in `TIDEGATE_TEST_KAFKA`; `None`, reported as a skip, where it is not set.
///
/// # Panics
/// None of the named brokers is reachable.
#[must_use]
pub fn kafka(suite: &str) -> Option<String> {
    server_from_env("TIDEGATE_TEST_KAFKA", suite, |value| value.split(',').map(str::to_owned).collect())
}

/// The contact points in `TIDEGATE_TEST_CQL`; `None`, reported as a skip, where it is not set.
///
/// # Panics
/// None of the named nodes is reachable.
#[must_use]
pub fn cql(suite: &str) -> Option<String> {
    server_from_env("TIDEGATE_TEST_CQL", suite, |value| value.split(',').map(str::to_owned).collect())
}

/// The bootstrap list of the listeners that speak TLS, in `TIDEGATE_TEST_KAFKA_TLS`; `None`, reported as a skip, where it
/// is not set.
///
/// # Panics
/// None of the named brokers is reachable.
#[must_use]
pub fn kafka_tls(suite: &str) -> Option<String> {
    server_from_env("TIDEGATE_TEST_KAFKA_TLS", suite, |value| value.split(',').map(str::to_owned).collect())
}

/// The bootstrap list of the listeners that speak TLS and ask for the password of `tidegate`, `tidegate-test`, in
/// `TIDEGATE_TEST_KAFKA_SASL`; `None`, reported as a skip, where it is not set.
///
/// # Panics
/// None of the named brokers is reachable.
#[must_use]
pub fn kafka_sasl(suite: &str) -> Option<String> {
    server_from_env("TIDEGATE_TEST_KAFKA_SASL", suite, |value| value.split(',').map(str::to_owned).collect())
}

/// The contact points that speak TLS, in `TIDEGATE_TEST_CQL_TLS`; `None`, reported as a skip, where it is not set.
///
/// # Panics
/// None of the named nodes is reachable.
#[must_use]
pub fn cql_tls(suite: &str) -> Option<String> {
    server_from_env("TIDEGATE_TEST_CQL_TLS", suite, |value| value.split(',').map(str::to_owned).collect())
}

/// The folder in `TIDEGATE_TEST_TLS`, with `ca.pem`, the issuer of the servers' certificates, `client.pem` and
/// `client.key`, and `stranger.pem`, which issued no certificate; `None`, reported as a skip, where it is not set.
#[must_use]
pub fn certificates(suite: &str) -> Option<PathBuf> {
    server_from_env("TIDEGATE_TEST_TLS", suite, |_| Vec::new()).map(PathBuf::from)
}

/// The base URL in `TIDEGATE_TEST_REGISTRY`; `None`, reported as a skip, where it is not set.
///
/// # Panics
/// The named registry is not reachable.
#[must_use]
pub fn registry(suite: &str) -> Option<String> {
    server_from_env("TIDEGATE_TEST_REGISTRY", suite, |url| {
        let uri: http::Uri = url.parse().unwrap_or_else(|e| panic!("TIDEGATE_TEST_REGISTRY is no URL: {e}"));
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        vec![format!("{}:{port}", uri.host().unwrap_or_default())]
    })
}

/// The Python that `variable` names, which has the packages that a suite compares with; `None`, reported as a skip, where
/// it is not set.
#[must_use]
pub fn python(variable: &str, suite: &str) -> Option<String> {
    let python_path = env::var(variable).ok().filter(|python| !python.is_empty());
    if python_path.is_none() {
        skip(variable, suite);
    }
    python_path
}

fn server_from_env(variable: &str, suite: &str, addresses: impl Fn(&str) -> Vec<String>) -> Option<String> {
    match env::var(variable) {
        Ok(value) if !value.is_empty() => {
            let addresses = addresses(&value);
            if !addresses.is_empty()
                && let Err(fault) = reach(&addresses, REACHED_WITHIN)
            {
                panic!("{variable} names {value}, which {suite} cannot reach: {fault}");
            }
            Some(value)
        }
        _ => {
            skip(variable, suite);
            None
        }
    }
}

fn skip(variable: &str, suite: &str) {
    skipped(suite, &format!("{variable} is not set"));
}

/// Reports that a suite did not run, and why.
pub fn skipped(suite: &str, why: &str) {
    let list = env::var_os("TIDEGATE_TEST_SKIPS");
    report(&skip_line(suite, why), list.as_deref().map(std::path::Path::new));
}

fn skip_line(suite: &str, why: &str) -> String {
    format!("skipped: {suite}: {why}\n")
}

// `eprintln` would be captured by the test harness, and a hidden skip is a silent failure.
fn report(line: &str, list: Option<&std::path::Path>) {
    io::stderr().write_all(line.as_bytes()).expect("standard error is open");
    if let Some(list) = list {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|e| panic!("cannot write to the file named by TIDEGATE_TEST_SKIPS: {e}"));
    }
}

// One reachable address is enough: a suite may have stopped another server.
fn reach(addresses: &[String], within: Duration) -> io::Result<()> {
    let deadline = Instant::now() + within;
    loop {
        let mut last = io::Error::other("no address given");
        for address in addresses {
            match connect(address) {
                Ok(()) => return Ok(()),
                Err(fault) => last = fault,
            }
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        #[expect(clippy::disallowed_methods, reason = "a blocking check before the test begins")]
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn connect(address: &str) -> io::Result<()> {
    let mut last = io::Error::other(format!("{address} resolves to no address"));
    for resolved in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&resolved, Duration::from_secs(2)) {
            Ok(_) => return Ok(()),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_skip_is_appended_to_the_list_by_name() {
        let list = tempfile::NamedTempFile::new().unwrap();
        report(&skip_line("the store contract", "TIDEGATE_TEST_X is not set"), Some(list.path()));
        report(&skip_line("another", "strace is not installed"), Some(list.path()));
        assert_eq!(
            std::fs::read_to_string(list.path()).unwrap(),
            "skipped: the store contract: TIDEGATE_TEST_X is not set\nskipped: another: strace is not installed\n"
        );
    }

    #[test]
    fn one_reachable_server_of_several_is_enough() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap().to_string();
        reach(&[unused(), here], Duration::ZERO).unwrap();
    }

    #[test]
    fn unreachable_server_is_an_error() {
        reach(&[unused()], Duration::ZERO).unwrap_err();
    }

    fn unused() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }
}
