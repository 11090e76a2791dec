//! Settings of the log on Kafka, their checks, and the resulting librdkafka configuration.
//!
//! `kafka/topics` compares the topics on the brokers with them.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use rdkafka::{ClientConfig, config::RDKafkaLogLevel};
use serde::{Deserialize, Serialize};

use super::kafka_tls;
use crate::topics::Topic;

/// The section `stream.kafka` of the service's settings.
///
/// TLS and SASL are keys of librdkafka, given in `librdkafka`, with secrets in `librdkafka_files`:
///
/// ```toml
/// [stream.kafka.librdkafka]
/// "security.protocol" = "SASL_SSL"
/// "sasl.mechanism" = "SCRAM-SHA-512"
/// "sasl.username" = "tidegate"
/// "ssl.ca.location" = "/etc/tidegate/kafka-ca.pem"
/// [stream.kafka.librdkafka_files]
/// "sasl.password" = "/run/secrets/kafka-password"
/// ```
///
/// They need a build with the feature `tls`, but for SASL/PLAIN without TLS. Certificates and host names are always
/// verified, by the system's authorities where `ssl.ca.location` names no others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaSettings {
    /// Addresses to start from, `host:port`. Default `127.0.0.1:9092`.
    pub brokers: Vec<String>,
    /// Client name on the brokers. Default `tidegate`.
    pub client_id: String,
    /// Time for which opening waits for brokers, topics and schemas, in milliseconds. Default 30,000.
    pub open_timeout_ms: u64,
    /// Time for one request to a broker, in milliseconds. Default 10,000.
    pub socket_timeout_ms: u64,
    /// Interval between statistics, the source of metrics, lag and readiness, in milliseconds. Default 1,000.
    pub statistics_interval_ms: u64,
    /// Longest time between the append time of a record and its visibility to consumers, in milliseconds. Exports end this
    /// long before the present. At least 1.5 times `replica.lag.time.max.ms` of the brokers (30,000) plus the difference of
    /// clocks. Default 60,000.
    pub max_replication_delay_ms: u64,
    pub producer: ProducerSettings,
    pub consumer: ConsumerSettings,
    pub topics: TopicSettings,
    /// Further librdkafka keys for every client, such as `security.protocol`. Keys with a setting of their own, and keys that
    /// Tidegate's guarantees depend on, are refused.
    pub librdkafka: ClientKeys,
    /// The same, each value read from a file; the line end at its end does not count.
    pub librdkafka_files: BTreeMap<String, PathBuf>,
}

/// Settings of the producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProducerSettings {
    /// Time for which a record waits until more can be sent with it, in milliseconds: more makes larger batches, and
    /// is added to each request. Default 5.
    pub linger_ms: u64,
    /// `none`, `lz4`, `zstd` or `gzip`. Default `lz4`: `zstd` sends fewer bytes for more CPU.
    pub compression: Compression,
    /// Time for which the client retries the delivery of a record, in milliseconds. Default 20,000.
    pub message_timeout_ms: u64,
    /// Time for which an append waits for its acknowledgement, in milliseconds. Must be above `message_timeout_ms`, or
    /// callers would get an error for a record that is still delivered. Default 25,000.
    pub append_timeout_ms: u64,
    /// Records that may wait for brokers; above it appends are refused as full. Default 100,000.
    pub queue_records: u32,
    /// KiB that may wait for brokers; above it appends are refused as full. Default 262,144 (256 MiB).
    pub queue_kib: u32,
    /// Further librdkafka keys for the producer.
    pub librdkafka: ClientKeys,
}

/// Settings of consumers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerSettings {
    /// `classic`, or `consumer` (KIP-848: brokers from 4.0 on, quicker and gentler rebalances). Default `classic`.
    pub group_protocol: GroupProtocol,
    /// Time without a heartbeat after which a member is removed from its group, in milliseconds. With `consumer` the brokers decide
    /// (`group.consumer.session.timeout.ms`), and this must repeat their value. Default 45,000.
    pub session_timeout_ms: u64,
    /// Time without a poll after which a member is removed from its group, in milliseconds. A slow handler does
    /// not cause it, because polling continues meanwhile. Default 300,000.
    pub max_poll_interval_ms: u64,
    /// KiB fetched in addition to the budget, for one consumer. Default 16,384 (16 MiB).
    pub prefetch_kib: u32,
    /// Further librdkafka keys for consumers.
    pub librdkafka: ClientKeys,
}

/// Configuration of topics made by `topics create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicSettings {
    /// Copies of every partition. Default 3.
    pub replication: i32,
    /// Copies that must hold a record before its acknowledgement. Default 2.
    pub min_insync_replicas: i32,
    /// Time for which records are kept, in hours; dead letters are kept without limit. Records that a group has not
    /// read by then are lost, and the group stops at the gap. Default 168 (7 days).
    pub retention_hours: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    #[default]
    Lz4,
    Zstd,
    Gzip,
}

impl Compression {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupProtocol {
    #[default]
    Classic,
    Consumer,
}

/// Keys of librdkafka with their values. Values that may be secret print as `***`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ClientKeys(pub BTreeMap<String, String>);

impl ClientKeys {
    fn masked_entries(&self) -> impl Iterator<Item = (&str, &str)> {
        const SECRET: [&str; 6] = ["password", "secret", "token", "pem", "jaas", "oauthbearer.config"];
        self.0.iter().map(|(key, value)| {
            let is_secret = SECRET.iter().any(|part| key.contains(part));
            (key.as_str(), if is_secret { "***" } else { value })
        })
    }
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.masked_entries()).finish()
    }
}

impl Serialize for ClientKeys {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.masked_entries())
    }
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self {
            brokers: vec!["127.0.0.1:9092".to_owned()],
            client_id: "tidegate".to_owned(),
            open_timeout_ms: 30_000,
            socket_timeout_ms: 10_000,
            statistics_interval_ms: 1_000,
            max_replication_delay_ms: 60_000,
            producer: ProducerSettings::default(),
            consumer: ConsumerSettings::default(),
            topics: TopicSettings::default(),
            librdkafka: ClientKeys::default(),
            librdkafka_files: BTreeMap::new(),
        }
    }
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            linger_ms: 5,
            compression: Compression::default(),
            message_timeout_ms: 20_000,
            append_timeout_ms: 25_000,
            queue_records: 100_000,
            queue_kib: 256 << 10,
            librdkafka: ClientKeys::default(),
        }
    }
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            group_protocol: GroupProtocol::default(),
            session_timeout_ms: 45_000,
            max_poll_interval_ms: 300_000,
            prefetch_kib: 16 << 10,
            librdkafka: ClientKeys::default(),
        }
    }
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self { replication: 3, min_insync_replicas: 2, retention_hours: 168 }
    }
}

/// Keys with a setting of their own, and keys that must not change, each with the reason.
const RESERVED_KEYS: &[(&str, &str)] = &[
    ("bootstrap.servers", "see stream.kafka.brokers"),
    ("metadata.broker.list", "see stream.kafka.brokers"),
    ("client.id", "see stream.kafka.client_id"),
    ("statistics.interval.ms", "see stream.kafka.statistics_interval_ms"),
    ("socket.timeout.ms", "see stream.kafka.socket_timeout_ms"),
    ("message.max.bytes", "it follows from the record limits of the topics"),
    ("acks", "accepted means on all copies in sync"),
    ("request.required.acks", "accepted means on all copies in sync"),
    ("enable.idempotence", "order and no doubles within a session rest on it"),
    ("transactional.id", "appends are not transactions"),
    ("partitioner", "partitions are chosen by Tidegate"),
    ("partitioner_cb", "partitions are chosen by Tidegate"),
    ("delivery.report.only.error", "an append waits for every report"),
    ("linger.ms", "see stream.kafka.producer.linger_ms"),
    ("queue.buffering.max.ms", "see stream.kafka.producer.linger_ms"),
    ("queue.buffering.max.messages", "see stream.kafka.producer.queue_records"),
    ("queue.buffering.max.kbytes", "see stream.kafka.producer.queue_kib"),
    ("compression.codec", "see stream.kafka.producer.compression"),
    ("compression.type", "see stream.kafka.producer.compression"),
    ("message.timeout.ms", "see stream.kafka.producer.message_timeout_ms"),
    ("delivery.timeout.ms", "see stream.kafka.producer.message_timeout_ms"),
    ("group.id", "it follows from stream.prefix and the group"),
    ("group.protocol", "see stream.kafka.consumer.group_protocol"),
    ("session.timeout.ms", "see stream.kafka.consumer.session_timeout_ms"),
    ("max.poll.interval.ms", "see stream.kafka.consumer.max_poll_interval_ms"),
    ("enable.auto.commit", "Tidegate commits completed records only"),
    ("auto.commit.enable", "Tidegate commits completed records only"),
    ("auto.commit.interval.ms", "Tidegate commits completed records only"),
    ("enable.auto.offset.store", "Tidegate commits completed records only"),
    ("auto.offset.reset", "an offset that retention has passed must stop the partition, not move it"),
    ("enable.partition.eof", "the engine expects none"),
    ("queued.max.messages.kbytes", "see stream.kafka.consumer.prefetch_kib"),
    ("allow.auto.create.topics", "topics are created by `topics create`"),
    ("enable.ssl.certificate.verification", "certificates are always verified"),
    ("log.queue", "log lines are written to the log of the process"),
];

const FILES: &str = "librdkafka_files";

/// Keys of the classic protocol only; with `consumer` the brokers decide.
const CLASSIC_ONLY: &[&str] =
    &["heartbeat.interval.ms", "partition.assignment.strategy", "group.protocol.type"];

/// Bytes for keys, headers and the batch around a record of the largest size.
pub(crate) const BATCH_OVERHEAD: usize = 64 << 10;

impl KafkaSettings {
    pub(crate) const fn max_replication_delay(&self) -> Duration {
        Duration::from_millis(self.max_replication_delay_ms)
    }

    /// Refuses invalid values. The error names both settings of a contradiction. `drain_ms` and `commit_ms` are the longest
    /// times for a release of partitions.
    pub fn validate(&self, drain_ms: u64, commit_ms: u64) -> Result<(), String> {
        if self.brokers.is_empty() || self.brokers.iter().any(|broker| broker.trim().is_empty()) {
            return Err("stream.kafka.brokers needs at least one address, and none may be empty".to_owned());
        }
        for (name, value) in [
            ("open_timeout_ms", self.open_timeout_ms),
            ("socket_timeout_ms", self.socket_timeout_ms),
            ("statistics_interval_ms", self.statistics_interval_ms),
            ("max_replication_delay_ms", self.max_replication_delay_ms),
            ("producer.queue_records", self.producer.queue_records.into()),
            ("consumer.prefetch_kib", self.consumer.prefetch_kib.into()),
            ("topics.retention_hours", self.topics.retention_hours),
            ("topics.replication", self.topics.replication.try_into().unwrap_or(0)),
            ("topics.min_insync_replicas", self.topics.min_insync_replicas.try_into().unwrap_or(0)),
        ] {
            if value == 0 {
                return Err(format!("stream.kafka.{name} must be at least 1"));
            }
        }
        let (producer, consumer) = (&self.producer, &self.consumer);
        // Each inner timeout must end before the outer one, so that the inner error is reported.
        let below = [
            (
                "kafka.producer.linger_ms",
                producer.linger_ms,
                "kafka.socket_timeout_ms",
                self.socket_timeout_ms,
            ),
            (
                "kafka.socket_timeout_ms",
                self.socket_timeout_ms,
                "kafka.producer.message_timeout_ms",
                producer.message_timeout_ms,
            ),
            (
                "kafka.producer.message_timeout_ms",
                producer.message_timeout_ms,
                "kafka.producer.append_timeout_ms",
                producer.append_timeout_ms,
            ),
            (
                "consume.drain_timeout_ms + stream.consume.commit_timeout_ms",
                drain_ms.saturating_add(commit_ms),
                "kafka.consumer.session_timeout_ms",
                consumer.session_timeout_ms,
            ),
            (
                "kafka.consumer.session_timeout_ms",
                consumer.session_timeout_ms,
                "kafka.consumer.max_poll_interval_ms",
                consumer.max_poll_interval_ms,
            ),
        ];
        for (lesser, less, greater, great) in below {
            if less >= great {
                return Err(format!("stream.{lesser} = {less} must be below stream.{greater} = {great}"));
            }
        }
        if self.topics.min_insync_replicas > self.topics.replication {
            return Err(format!(
                "stream.kafka.topics.min_insync_replicas = {} is above stream.kafka.topics.replication = {}",
                self.topics.min_insync_replicas, self.topics.replication
            ));
        }
        let largest = Topic::DeadLetters.max_record_bytes() / 1024;
        if (producer.queue_kib as usize) < largest {
            return Err(format!(
                "stream.kafka.producer.queue_kib = {} is below the largest record, {largest} KiB",
                producer.queue_kib
            ));
        }
        for (section, keys) in [
            ("librdkafka", &self.librdkafka),
            ("producer.librdkafka", &producer.librdkafka),
            ("consumer.librdkafka", &consumer.librdkafka),
        ] {
            for (key, value) in &keys.0 {
                self.check_key(section, key)?;
                kafka_tls::check_key(section, key, Some(value))?;
            }
        }
        for key in self.librdkafka_files.keys() {
            self.check_key(FILES, key)?;
            kafka_tls::check_key(FILES, key, None)?;
        }
        if let Some(key) = self.librdkafka.0.keys().find(|key| self.librdkafka_files.contains_key(*key)) {
            return Err(format!("stream.kafka: {key} is in librdkafka and in librdkafka_files"));
        }
        Ok(())
    }

    fn check_key(&self, section: &str, key: &str) -> Result<(), String> {
        // The value may be a secret, so only the key is named.
        if let Some((_, why)) = RESERVED_KEYS.iter().find(|(reserved, _)| *reserved == key) {
            return Err(format!("stream.kafka.{section}: {key} cannot be set: {why}"));
        }
        if self.consumer.group_protocol == GroupProtocol::Consumer && CLASSIC_ONLY.contains(&key) {
            return Err(format!(
                "stream.kafka.{section}: {key} contradicts stream.kafka.consumer.group_protocol = consumer, \
                 where the brokers decide it"
            ));
        }
        Ok(())
    }

    /// Reads the configured files, as the clients would.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        self.client().map(drop)
    }

    /// Configuration that every client shares.
    fn client(&self) -> Result<ClientConfig, String> {
        let mut config = ClientConfig::new();
        for (key, value) in &self.librdkafka.0 {
            config.set(key, value);
        }
        for (key, path) in &self.librdkafka_files {
            let value = std::fs::read_to_string(path)
                .map_err(|why| format!("stream.kafka.librdkafka_files: {key}: {}: {why}", path.display()))?;
            let value = value.trim_end_matches(['\r', '\n']);
            kafka_tls::check_key(FILES, key, Some(value))?;
            config.set(key, value);
        }
        kafka_tls::find_authorities(&mut config);
        kafka_tls::check_files(&config)?;
        config
            .set("bootstrap.servers", self.brokers.join(","))
            .set("client.id", &self.client_id)
            .set("socket.timeout.ms", self.socket_timeout_ms.to_string())
            .set("statistics.interval.ms", self.statistics_interval_ms.to_string())
            .set("message.max.bytes", (Topic::DeadLetters.max_record_bytes() + BATCH_OVERHEAD).to_string());
        // Fail-over is detected with the next metadata refresh, by default only after five minutes. A broker that returns is
        // used again within a second.
        for (key, value) in [
            ("topic.metadata.refresh.interval.ms", "10000"),
            ("reconnect.backoff.max.ms", "1000"),
            ("socket.keepalive.enable", "true"),
            ("allow.auto.create.topics", "false"),
        ] {
            if config.get(key).is_none() {
                config.set(key, value);
            }
        }
        Ok(config)
    }

    pub(crate) fn admin(&self) -> Result<ClientConfig, String> {
        let mut config = self.client()?;
        // Short-lived clients need no statistics.
        config.set("statistics.interval.ms", "0");
        // At this level librdkafka logs closed connections, such as those of a broker that expects TLS.
        config.set_log_level(RDKafkaLogLevel::Info);
        Ok(config)
    }

    pub(crate) fn producer(&self) -> Result<ClientConfig, String> {
        let mut config = self.client()?;
        let producer = &self.producer;
        for (key, value) in &producer.librdkafka.0 {
            config.set(key, value);
        }
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", producer.linger_ms.to_string())
            .set("compression.type", producer.compression.name())
            .set("message.timeout.ms", producer.message_timeout_ms.to_string())
            .set("queue.buffering.max.messages", producer.queue_records.to_string())
            .set("queue.buffering.max.kbytes", producer.queue_kib.to_string());
        Ok(config)
    }

    /// Configuration for reading without a group. librdkafka requires a group name, but the client does not join or commit.
    pub(crate) fn reader(&self, name: &str) -> Result<ClientConfig, String> {
        let mut config = self.client()?;
        config
            .set("statistics.interval.ms", "0")
            .set("group.id", name)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true");
        Ok(config)
    }

    pub(crate) fn consumer(&self, group_id: &str) -> Result<ClientConfig, String> {
        let mut config = self.client()?;
        let consumer = &self.consumer;
        // Records beyond the budget wait at the broker rather than here. A partition that is resumed is fetched only
        // when the broker has answered for the idle ones, so that answer must not take long.
        for (key, value) in
            [("queued.min.messages", "1000"), ("fetch.queue.backoff.ms", "5"), ("fetch.wait.max.ms", "50")]
        {
            if config.get(key).is_none() {
                config.set(key, value);
            }
        }
        for (key, value) in &consumer.librdkafka.0 {
            config.set(key, value);
        }
        config
            .set("group.id", group_id)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "false")
            .set("max.poll.interval.ms", consumer.max_poll_interval_ms.to_string())
            .set("queued.max.messages.kbytes", consumer.prefetch_kib.to_string());
        match consumer.group_protocol {
            GroupProtocol::Classic => {
                config
                    .set("group.protocol", "classic")
                    .set("session.timeout.ms", consumer.session_timeout_ms.to_string());
            }
            GroupProtocol::Consumer => {
                config.set("group.protocol", "consumer");
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parsed(text: &str) -> KafkaSettings {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn defaults_are_consistent_and_valid_for_librdkafka() {
        let settings = parsed("{}");
        assert_eq!(settings, KafkaSettings::default());
        settings.validate(20_000, 5_000).unwrap();
        for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
            let mut settings = settings.clone();
            settings.consumer.group_protocol = protocol;
            settings.consumer("tidegate.items").unwrap().create_native_config().unwrap();
        }
        settings.producer().unwrap().create_native_config().unwrap();
        settings.admin().unwrap().create_native_config().unwrap();
    }

    #[test]
    fn timeouts_out_of_order_are_refused_with_both_values() {
        for (text, both) in [
            (
                r#"{"producer":{"append_timeout_ms":20000}}"#,
                ["message_timeout_ms = 20000", "append_timeout_ms = 20000"],
            ),
            (r#"{"socket_timeout_ms":30000}"#, ["socket_timeout_ms = 30000", "message_timeout_ms = 20000"]),
            (
                r#"{"consumer":{"session_timeout_ms":25000}}"#,
                ["commit_timeout_ms = 25000", "session_timeout_ms = 25000"],
            ),
            (
                r#"{"consumer":{"max_poll_interval_ms":45000}}"#,
                ["session_timeout_ms = 45000", "max_poll_interval_ms = 45000"],
            ),
            (r#"{"topics":{"min_insync_replicas":4}}"#, ["min_insync_replicas = 4", "replication = 3"]),
        ] {
            let error = parsed(text).validate(20_000, 5_000).unwrap_err();
            assert!(both.iter().all(|named| error.contains(named)), "{error}");
        }
    }

    #[test]
    fn guaranteed_keys_cannot_be_overridden() {
        for key in
            ["acks", "enable.idempotence", "enable.auto.commit", "auto.offset.reset", "bootstrap.servers"]
        {
            for section in ["", "producer", "consumer"] {
                let keys = serde_json::json!({ "librdkafka": { key: "x" } });
                let whole = if section.is_empty() { keys } else { serde_json::json!({ section: keys }) };
                let settings: KafkaSettings = serde_json::from_value(whole).unwrap();
                let error = settings.validate(1, 1).unwrap_err();
                assert!(error.contains(key), "{error}");
            }
        }
        for section in ["librdkafka", "producer", "consumer"] {
            let keys = r#"{"ssl.endpoint.identification.algorithm":"None"}"#;
            let keys =
                if section == "librdkafka" { keys.to_owned() } else { format!(r#"{{"librdkafka":{keys}}}"#) };
            let refused = parsed(&format!(r#"{{"{section}":{keys}}}"#)).validate(1, 1).unwrap_err();
            assert!(refused.contains("host names are always verified"), "{refused}");
        }
    }

    #[test]
    fn consumer_protocol_refuses_keys_of_the_classic_one() {
        let text =
            r#"{"consumer":{"group_protocol":"consumer","librdkafka":{"heartbeat.interval.ms":"100"}}}"#;
        assert!(parsed(text).validate(1, 1).unwrap_err().contains("heartbeat.interval.ms"));
        let mut classic = parsed(text);
        classic.consumer.group_protocol = GroupProtocol::Classic;
        classic.validate(1, 1).unwrap();
        let config = classic.consumer("g").unwrap();
        assert_eq!(config.get("heartbeat.interval.ms"), Some("100"));
        assert_eq!(config.get("session.timeout.ms"), Some("45000"));
        classic.consumer =
            ConsumerSettings { group_protocol: GroupProtocol::Consumer, ..ConsumerSettings::default() };
        assert_eq!(classic.consumer("g").unwrap().get("session.timeout.ms"), None);
    }

    #[test]
    fn secrets_are_read_from_files_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "hush\n").unwrap();
        let mut settings = parsed(r#"{"librdkafka":{"ssl.key.password":"quiet","client.rack":"a"}}"#);
        settings.librdkafka_files.insert("sasl.password".to_owned(), path);
        let config = settings.producer().unwrap();
        assert_eq!(config.get("sasl.password"), Some("hush"));
        let shown = format!("{settings:?}{}", serde_json::to_string(&settings).unwrap());
        assert!(!shown.contains("quiet") && !shown.contains("hush"), "{shown}");
        assert!(shown.contains("client.rack"));
    }

    #[test]
    fn values_from_files_are_checked_too() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |key: &str, value: &str| {
            let (mut settings, path) = (KafkaSettings::default(), folder.path().join("value"));
            std::fs::write(&path, value).unwrap();
            settings.librdkafka_files.insert(key.to_owned(), path);
            settings.producer().unwrap_err()
        };
        let names = refused("ssl.endpoint.identification.algorithm", "none\n");
        assert!(names.contains("host names are always verified"), "{names}");
        if !cfg!(feature = "tls") {
            assert!(refused("security.protocol", "sasl_ssl\n").contains("the feature `tls`"));
        }
    }
}
