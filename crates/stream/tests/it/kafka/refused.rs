//! Refusals by a broker are distinguished from unreachable brokers.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use tidegate_stream::{Log, error::OpenError};
use tidegate_test_support::free_port;

use super::fixture::settings;

const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;

/// Implements just enough of the Kafka protocol to refuse a password.
fn refuse_password(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let mut request = vec![0; u32::from_be_bytes(size) as usize];
        stream.read_exact(&mut request)?;
        let key = i16::from_be_bytes([request[0], request[1]]);
        let version = i16::from_be_bytes([request[2], request[3]]);
        let mut answer = request[4..8].to_vec();
        let apis = |out: &mut Vec<u8>, error: i16| {
            out.extend(error.to_be_bytes());
            out.extend(3_i32.to_be_bytes());
            for (api, newest) in [(SASL_HANDSHAKE, 1_i16), (API_VERSIONS, 0), (SASL_AUTHENTICATE, 0)] {
                out.extend([api.to_be_bytes(), 0_i16.to_be_bytes(), newest.to_be_bytes()].concat());
            }
        };
        match key {
            // Unsupported version: the client asks again with the oldest one.
            API_VERSIONS if version > 0 => apis(&mut answer, 35),
            API_VERSIONS => apis(&mut answer, 0),
            SASL_HANDSHAKE => {
                answer.extend(0_i16.to_be_bytes());
                answer.extend(1_i32.to_be_bytes());
                answer.extend([0, 5]);
                answer.extend(b"PLAIN");
            }
            SASL_AUTHENTICATE => {
                let reason = b"Authentication failed: Invalid username or password";
                answer.extend(58_i16.to_be_bytes());
                answer.extend(i16::try_from(reason.len()).unwrap().to_be_bytes());
                answer.extend(reason);
                answer.extend(0_i32.to_be_bytes());
            }
            _ => return Ok(()),
        }
        stream.write_all(&u32::try_from(answer.len()).unwrap().to_be_bytes())?;
        stream.write_all(&answer)?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_no_outage_but_a_missing_broker_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || refuse_password(stream));
        }
    });
    let mut settings = settings(&brokers);
    for (key, value) in [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "tidegate"),
        ("sasl.password", "wrong"),
    ] {
        settings.kafka.librdkafka.0.insert(key.to_owned(), value.to_owned());
    }
    settings.kafka.socket_timeout_ms = 2_000;
    settings.kafka.open_timeout_ms = 10_000;
    let error = Log::open_kafka(settings.clone()).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }) && !error.is_outage(), "{error}");
    assert!(error.to_string().contains("Invalid username or password"), "{error}");

    settings.kafka.brokers = vec![format!("127.0.0.1:{}", free_port().unwrap())];
    settings.kafka.open_timeout_ms = 500;
    let outage = Log::open_kafka(settings).await.unwrap_err();
    assert!(outage.is_outage(), "{outage}");
}
