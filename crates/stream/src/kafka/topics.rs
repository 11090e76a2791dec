//! Creates the topics, and compares existing ones with the settings.
//!
//! An existing topic is never changed: a difference is reported, and refused if it breaks a guarantee.

use std::{sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use parking_lot::Mutex;
use rdkafka::{
    ClientContext,
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    producer::{DeliveryResult, Producer as _, ProducerContext, ThreadedProducer},
};
use tokio::time::Instant;

use super::client_stats;
use crate::{
    error::OpenError,
    settings::{Settings, kafka::BATCH_OVERHEAD},
    topics::Topic,
};

const CLIENT: &str = "admin";
/// Pause between two queries while a change takes effect.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time until every broker knows a new topic.
const PROPAGATION: Duration = Duration::from_secs(5);

/// Result of `create_topics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsReport {
    pub created: Vec<String>,
    pub existing: Vec<String>,
    /// Differences from the settings that break no guarantee.
    pub warnings: Vec<String>,
}

/// Errors reported by librdkafka during a query. The query itself only times out.
#[derive(Default)]
struct AdminContext {
    /// Reason of a refusal of our credentials or certificates.
    refusal: Mutex<Option<String>>,
    /// Reason of the last broken or refused connection.
    connection_error: Mutex<Option<String>>,
}

impl ClientContext for AdminContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        client_stats::log(CLIENT, level, facility, line);
        if facility == client_stats::BROKEN_LINK {
            *self.connection_error.lock() = Some(line.to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(target: "librdkafka", client = CLIENT, code = client_stats::code(&error), "{reason}");
        if is_refusal(error.rdkafka_error_code(), reason) {
            self.refusal.lock().get_or_insert_with(|| reason.to_owned());
        }
    }
}

impl ProducerContext for AdminContext {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// Client that queries and creates topics.
pub(super) struct Admin<'a> {
    settings: &'a Settings,
    /// Producer that only queries metadata. An admin client would not learn why its queries stay unanswered, because
    /// librdkafka reports no errors to it.
    metadata_client: Arc<ThreadedProducer<AdminContext>>,
    client: Arc<AdminClient<AdminContext>>,
    options: AdminOptions,
    request_timeout: Duration,
    /// Time for each query: brokers may be starting or electing a leader.
    patience: Duration,
}

/// True if the broker refuses our credentials, or one side refuses the other's certificate. A connection that breaks during
/// authentication has the same code, but `Local` in its text.
fn is_refusal(code: Option<RDKafkaErrorCode>, reason: &str) -> bool {
    let are_credentials = code == Some(RDKafkaErrorCode::Authentication) && !reason.contains("Local:");
    are_credentials || is_distrust(code, reason)
}

/// True if either side refuses the other's certificate, which a retry cannot change.
fn is_distrust(code: Option<RDKafkaErrorCode>, reason: &str) -> bool {
    const SIGNS: [&str; 7] = [
        "certificate verify failed",
        "verify broker certificate",
        "not provide a certificate",
        // Alerts of a broker about our certificate. With TLS 1.3 they arrive after the handshake.
        "alert bad certificate",
        "alert unsupported certificate",
        "alert certificate ",
        "alert unknown ca",
    ];
    let concerns_connection =
        matches!(code, Some(RDKafkaErrorCode::SSL | RDKafkaErrorCode::BrokerTransportFailure));
    concerns_connection && SIGNS.iter().any(|sign| reason.contains(sign))
}

/// Returns a hint for a broker that closed the connection without an answer. It may also be starting or stopping.
fn disconnect_hint(error: &str) -> &'static str {
    if !error.contains("Disconnected") {
        ""
    } else if error.contains("APIVERSION_QUERY") {
        " (does the broker want TLS, or a certificate? see security.protocol)"
    } else if error.contains("SSL_HANDSHAKE") {
        // librdkafka adds the same hint itself if it receives an answer before the connection is closed.
        " (connecting to a PLAINTEXT broker listener? see security.protocol)"
    } else {
        ""
    }
}

/// True if a refusal with this code is temporary.
fn is_transient(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::RequestTimedOut
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::NotController
            | RDKafkaErrorCode::LeaderNotAvailable
            | RDKafkaErrorCode::BrokerNotAvailable
    )
}

/// Creates missing topics, and verifies the others.
#[boxed]
pub async fn create_topics(settings: &Settings) -> Result<TopicsReport, OpenError> {
    settings.validate()?;
    Admin::new(settings)?.create().await
}

impl<'a> Admin<'a> {
    pub(super) fn new(settings: &'a Settings) -> Result<Self, OpenError> {
        let kafka = &settings.kafka;
        let config = kafka.admin().map_err(OpenError::Settings)?;
        let refuse = |why: KafkaError| OpenError::Settings(client_stats::creation_error(&why));
        let client = config.create_with_context(AdminContext::default()).map_err(refuse)?;
        let metadata_client = config.create_with_context(AdminContext::default()).map_err(refuse)?;
        let request_timeout = Duration::from_millis(kafka.socket_timeout_ms);
        Ok(Self {
            settings,
            metadata_client: Arc::new(metadata_client),
            client: Arc::new(client),
            options: AdminOptions::new()
                .request_timeout(Some(request_timeout))
                .operation_timeout(Some(request_timeout)),
            request_timeout,
            patience: Duration::from_millis(kafka.open_timeout_ms),
        })
    }

    /// Refuses missing topics and differences that break a guarantee. Returns warnings about other differences.
    pub(super) async fn verify(&self) -> Result<Vec<String>, OpenError> {
        let deadline = Instant::now() + self.patience.min(PROPAGATION);
        for topic in Topic::ALL {
            let mut partition_count = self.fetch_partition_count(topic).await?;
            // The broker may not know a new topic yet.
            while partition_count == 0 && Instant::now() < deadline {
                tokio::time::sleep(RETRY_PAUSE).await;
                partition_count = self.fetch_partition_count(topic).await?;
            }
            if partition_count == 0 {
                let name = topic.name(&self.settings.prefix);
                return Err(OpenError::Topic {
                    detail: format!("{name} does not exist: run `tidegate topics create`"),
                    name,
                });
            }
            self.check_partition_count(topic, partition_count)?;
        }
        self.check_configurations(&Topic::ALL).await
    }

    async fn create(&self) -> Result<TopicsReport, OpenError> {
        let mut report = TopicsReport::default();
        let (mut missing_topics, mut existing_topics) = (Vec::new(), Vec::new());
        // Compare all existing topics first: a refusal must leave no half-created set of topics.
        for topic in Topic::ALL {
            match self.fetch_partition_count(topic).await? {
                0 => missing_topics.push(topic),
                partition_count => {
                    self.check_partition_count(topic, partition_count)?;
                    existing_topics.push(topic);
                }
            }
        }
        report.warnings = self.check_configurations(&existing_topics).await?;
        report.existing = existing_topics.iter().map(|topic| topic.name(&self.settings.prefix)).collect();
        for topic in missing_topics {
            let name = topic.name(&self.settings.prefix);
            self.create_topic(topic, &name).await?;
            report.created.push(name);
        }
        Ok(report)
    }

    async fn create_topic(&self, topic: Topic, name: &str) -> Result<(), OpenError> {
        let topics = &self.settings.kafka.topics;
        let partitions = i32::try_from(self.settings.partition_count()).unwrap_or(i32::MAX);
        let config = configuration(topic, topics.min_insync_replicas, topics.retention_hours);
        let mut new_topic = NewTopic::new(name, partitions, TopicReplication::Fixed(topics.replication));
        for (key, value) in &config {
            new_topic = new_topic.set(key, value);
        }
        let to_error = |detail: String| OpenError::Topic { name: name.to_owned(), detail };
        let deadline = Instant::now() + self.patience;
        loop {
            let result = self.client.create_topics([&new_topic], &self.options).await;
            let reason = match result.map(|mut results| results.pop()) {
                // Another process created it at the same time, or our own earlier request succeeded without an answer.
                Ok(Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)))) => break,
                Ok(Some(Err((_, code)))) if !is_transient(code) => {
                    return Err(to_error(format!("{name} was not created: {code}")));
                }
                Ok(Some(Err((_, code)))) => code.to_string(),
                Ok(None) => "no answer about it".to_owned(),
                Err(reason) => reason.to_string(),
            };
            if Instant::now() >= deadline {
                return Err(OpenError::Unavailable { detail: format!("{name} was not created: {reason}") });
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        // The answer arrives before every broker knows the topic.
        loop {
            match self.fetch_partition_count(topic).await? {
                0 if Instant::now() < deadline => tokio::time::sleep(RETRY_PAUSE).await,
                0 => return Err(to_error(format!("{name} was created, but no broker knows it yet"))),
                partition_count => return self.check_partition_count(topic, partition_count),
            }
        }
    }

    fn check_partition_count(&self, topic: Topic, found: u32) -> Result<(), OpenError> {
        let configured = self.settings.partition_count();
        if found == configured {
            return Ok(());
        }
        let found_in = format!("kafka ({})", self.settings.kafka.brokers.join(","));
        Err(OpenError::PartitionCount { topic, configured, found, found_in })
    }

    /// Returns the number of partitions on the brokers; 0 if the topic does not exist. Repeats the query until a broker
    /// answers or time is up.
    async fn fetch_partition_count(&self, topic: Topic) -> Result<u32, OpenError> {
        let name = topic.name(&self.settings.prefix);
        let deadline = Instant::now() + self.patience;
        loop {
            let (client, name, timeout) =
                (Arc::clone(&self.metadata_client), name.clone(), self.request_timeout);
            let result = tokio::task::spawn_blocking(move || {
                let metadata = client.client().fetch_metadata(Some(&name), timeout)?;
                let topic = metadata.topics().iter().find(|topic| topic.name() == name);
                Ok(topic.map_or((0, None), |topic| {
                    (topic.partitions().len(), topic.error().map(RDKafkaErrorCode::from))
                }))
            });
            let result = result.await;
            if let Some(detail) = self.metadata_client.context().refusal.lock().clone() {
                return Err(OpenError::Refused { detail });
            }
            let reason = match result {
                Ok(Ok((count, None))) => return Ok(u32::try_from(count).unwrap_or(u32::MAX)),
                Ok(Ok((
                    _,
                    Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic),
                ))) => {
                    return Ok(0);
                }
                Ok(Ok((
                    _,
                    Some(
                        code @ (RDKafkaErrorCode::TopicAuthorizationFailed
                        | RDKafkaErrorCode::ClusterAuthorizationFailed),
                    ),
                ))) => {
                    let detail = format!("{}: {code}", topic.name(&self.settings.prefix));
                    return Err(OpenError::Refused { detail });
                }
                Ok(Ok((_, Some(code)))) => format!("{}: {code}", topic.name(&self.settings.prefix)),
                Ok(Err::<_, KafkaError>(reason)) => reason.to_string(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                let error = self.metadata_client.context().connection_error.lock().clone();
                let detail = error
                    .map_or(reason.clone(), |error| format!("{reason}: {error}{}", disconnect_hint(&error)));
                return Err(OpenError::Unavailable { detail });
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn check_configurations(&self, topics: &[Topic]) -> Result<Vec<String>, OpenError> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = topics.iter().map(|topic| topic.name(&self.settings.prefix)).collect();
        let resources: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        let answers = match self.client.describe_configs(&resources, &self.options).await {
            Ok(answers) => answers,
            // Not fatal: our principal may lack the right to read it, and old brokers do not return it.
            Err(error) => return Ok(vec![format!("the topics' configuration cannot be read: {error}")]),
        };
        let mut warnings = Vec::new();
        for (topic, answer) in topics.iter().zip(answers) {
            let name = topic.name(&self.settings.prefix);
            match answer {
                Ok(entries) => {
                    let value = |key: &str| entries.get(key).and_then(|entry| entry.value.clone());
                    compare(*topic, &name, self.settings, value, &mut warnings)?;
                }
                Err(code) => warnings.push(format!("{name}: its configuration cannot be read: {code}")),
            }
        }
        Ok(warnings)
    }
}

/// Returns the configuration of a new topic.
fn configuration(
    topic: Topic,
    min_insync_replicas: i32,
    retention_hours: u64,
) -> Vec<(&'static str, String)> {
    let retention = match topic {
        Topic::DeadLetters => "-1".to_owned(),
        _ => retention_hours.saturating_mul(3_600_000).min(i64::MAX as u64).to_string(),
    };
    vec![
        ("cleanup.policy", "delete".to_owned()),
        ("message.timestamp.type", "LogAppendTime".to_owned()),
        ("min.insync.replicas", min_insync_replicas.to_string()),
        ("retention.ms", retention),
        ("retention.bytes", "-1".to_owned()),
        ("max.message.bytes", largest_batch(topic).to_string()),
        // A replica that fell behind must not become the leader, because it lacks acknowledged records.
        ("unclean.leader.election.enable", "false".to_owned()),
    ]
}

/// Largest batch of a topic: the broker measures the batch around a record.
const fn largest_batch(topic: Topic) -> usize {
    topic.max_record_bytes() + BATCH_OVERHEAD
}

fn compare(
    topic: Topic,
    name: &str,
    settings: &Settings,
    value: impl Fn(&str) -> Option<String>,
    warnings: &mut Vec<String>,
) -> Result<(), OpenError> {
    let topics = &settings.kafka.topics;
    for (key, expected) in configuration(topic, topics.min_insync_replicas, topics.retention_hours) {
        let Some(actual) = value(key) else { continue };
        let is_lower = || match (actual.parse::<u64>(), expected.parse::<u64>()) {
            (Ok(actual), Ok(expected)) => actual < expected,
            _ => false,
        };
        let breaks_guarantee = match key {
            // Order and write times rest on the log's clock, compaction would drop unread records, and a smaller batch would
            // refuse accepted records.
            "message.timestamp.type" | "cleanup.policy" => actual != expected,
            "max.message.bytes" => is_lower(),
            _ => false,
        };
        if breaks_guarantee {
            let detail = format!("{name} has {key}={actual}, but needs {expected}");
            return Err(OpenError::Topic { name: name.to_owned(), detail });
        }
        if actual != expected {
            warnings.push(format!("{name} has {key}={actual}, the settings ask for {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn compared(topic: Topic, key: &'static str, found: &'static str) -> Result<Vec<String>, OpenError> {
        let mut warnings = Vec::new();
        let value = |asked: &str| (asked == key).then(|| found.to_owned());
        compare(topic, "t.x", &Settings::default(), value, &mut warnings).map(|()| warnings)
    }

    #[test]
    fn disconnect_hint_depends_on_the_connection_state() {
        let hung_up =
            |state: &str| disconnect_hint(&format!("Disconnected: by peer (after 1ms in state {state})"));
        assert!(hung_up("APIVERSION_QUERY").contains("want TLS"));
        assert!(hung_up("SSL_HANDSHAKE").contains("PLAINTEXT"));
        assert_eq!(hung_up("UP"), "");
        assert_eq!(disconnect_hint("Connect to 127.0.0.1:1 failed: Connection refused"), "");
    }

    #[test]
    fn topic_with_writer_timestamps_is_refused_with_both_values() {
        let error = compared(Topic::Items, "message.timestamp.type", "CreateTime").unwrap_err().to_string();
        assert_eq!(error, "t.x has message.timestamp.type=CreateTime, but needs LogAppendTime");
    }

    #[test]
    fn topic_with_compaction_or_lower_size_limit_is_refused() {
        assert!(compared(Topic::Items, "cleanup.policy", "compact").is_err());
        assert!(compared(Topic::Items, "max.message.bytes", "1048588").is_err());
        assert!(
            compared(Topic::DeadLetters, "max.message.bytes", "10551296").is_err(),
            "they wrap other records"
        );
        assert_eq!(compared(Topic::Items, "max.message.bytes", "10551296").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn other_differences_are_warnings_that_name_both_values() {
        assert_eq!(
            compared(Topic::Items, "min.insync.replicas", "1").unwrap(),
            ["t.x has min.insync.replicas=1, the settings ask for 2"]
        );
        assert_eq!(compared(Topic::DeadLetters, "retention.ms", "-1").unwrap(), Vec::<String>::new());
        assert_eq!(compared(Topic::DeadLetters, "retention.ms", "1").unwrap().len(), 1);
    }
}
