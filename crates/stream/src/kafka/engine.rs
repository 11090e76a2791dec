//! Engine of a consumer on Kafka: fetches records, follows the group, commits, and stops at gaps.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rdkafka::{
    Offset as KafkaOffset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::Message,
};

use super::{
    arena::Arena,
    client_stats::{self, BrokerHealth},
    committer::{CommitOutcome, Committer},
    end_queries::{EndAnswer, EndQueries},
    rebalance_events::{self, ConsumerEvent, EventQueue},
    topic_names::{TopicNames, index_of},
};
use crate::{
    consumer::{
        budget::Amount,
        engine::{Engine, Event},
    },
    record::FetchedRecord,
    settings::kafka::KafkaSettings,
    topics::{NextOffset, Partition, Topic},
    wakeup::Wakeup,
};

/// Largest amount of one poll, so that the driver can collect settlements between polls.
const MAX_POLL_AMOUNT: Amount = Amount { records: 4_096, bytes: 4 << 20 };
/// Pause before an unanswered query to the brokers is repeated.
const QUERY_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Longest time for which one query to the brokers may block the driver. Unanswered queries are repeated.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two queries for the ends of all partitions.
const END_QUERY_INTERVAL: Duration = Duration::from_secs(2);
/// Stands for an unknown end of a partition: all its records count as possible replays.
const UNKNOWN_END: i64 = i64::MAX;
/// Longest time to leave the group. Without brokers, leaving never ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Partitions revoked by the group and not yet returned.
struct PendingRevocation {
    list: TopicPartitionList,
    unreleased: BTreeSet<Partition>,
}

/// Reason why no records are read, and whether it was reported to the driver.
#[derive(Default)]
struct Outage {
    brokers_down: bool,
    error: Option<String>,
    is_reported: bool,
}

impl Outage {
    fn report(&mut self, events: &mut Vec<Event>) {
        let is_out = self.brokers_down || self.error.is_some();
        if is_out == std::mem::replace(&mut self.is_reported, is_out) {
            return;
        }
        events.push(if is_out {
            let detail = self.error.clone().unwrap_or_else(|| "no kafka broker is reachable".to_owned());
            Event::Unreachable { detail }
        } else {
            Event::Reachable
        });
    }
}

/// Result of polling librdkafka.
struct PollResult {
    arena: Arena,
    errors: Vec<KafkaError>,
    /// True if no records or events are left.
    is_empty: bool,
}

pub(super) struct KafkaEngine {
    /// `None` once closed.
    consumer: Option<Arc<BaseConsumer<EventQueue>>>,
    committer: Option<Committer>,
    end_queries: Option<EndQueries>,
    next_end_query_at: Instant,
    max_replication_delay: Duration,
    names: Arc<TopicNames>,
    wakeup: Arc<Wakeup>,
    health: Arc<BrokerHealth>,
    /// Next offset of every partition that was reported to the driver as assigned.
    next: BTreeMap<Partition, NextOffset>,
    paused: BTreeSet<Partition>,
    /// Partitions at a gap: never resumed.
    stopped: BTreeSet<Partition>,
    /// Records that were polled but not reported yet, because they exceeded the available amount.
    deferred: VecDeque<FetchedRecord>,
    /// Assigned partitions with committed offsets still to be queried.
    assigning: VecDeque<TopicPartitionList>,
    revoking: VecDeque<PendingRevocation>,
    /// True if some position is outside its partition. librdkafka does not report which.
    out_of_range: bool,
    /// Earliest time of the next query to the brokers.
    next_query_at: Instant,
    outage: Outage,
    has_failed: bool,
}

impl KafkaEngine {
    /// Joins the group. Sends no query to the brokers yet.
    pub(super) fn open(
        settings: &KafkaSettings,
        group_id: &str,
        topics: &[Topic],
        names: Arc<TopicNames>,
        health: Arc<BrokerHealth>,
        wakeup: Arc<Wakeup>,
    ) -> Result<Self, String> {
        let config = settings.consumer(group_id)?;
        let events = EventQueue::new(Arc::clone(&names), Arc::clone(&health));
        let mut consumer: BaseConsumer<EventQueue> =
            config.create_with_context(events).map_err(|why| client_stats::creation_error(&why))?;
        let nonempty = Arc::clone(&wakeup);
        // librdkafka wakes the driver when records arrive, so no polling interval is needed.
        consumer.set_nonempty_callback(move || nonempty.notify());
        let topics: Vec<&str> = topics.iter().map(|topic| names.name(*topic)).collect();
        consumer.subscribe(&topics).map_err(|why| why.to_string())?;
        let consumer = Arc::new(consumer);
        let committer = Committer::start(Arc::clone(&consumer), Arc::clone(&names), Arc::clone(&wakeup))
            .map_err(|why| format!("cannot start the commit thread: {why}"))?;
        let end_queries = EndQueries::start(Arc::clone(&consumer), Arc::clone(&names), Arc::clone(&wakeup))
            .map_err(|why| format!("cannot start the thread of the end queries: {why}"))?;
        Ok(Self {
            consumer: Some(consumer),
            committer: Some(committer),
            end_queries: Some(end_queries),
            next_end_query_at: Instant::now(),
            max_replication_delay: settings.max_replication_delay(),
            names,
            wakeup,
            health,
            next: BTreeMap::new(),
            paused: BTreeSet::new(),
            stopped: BTreeSet::new(),
            deferred: VecDeque::new(),
            assigning: VecDeque::new(),
            revoking: VecDeque::new(),
            out_of_range: false,
            next_query_at: Instant::now(),
            outage: Outage::default(),
            has_failed: false,
        })
    }

    /// Collects the present events in order, without waiting. Returns true if none are left.
    fn collect(&mut self, available: Amount, events: &mut Vec<Event>) -> bool {
        self.collect_commits(events);
        if let Some(why) = self.health.fatal_error() {
            let detail = why.to_owned();
            self.fail(detail, events);
        }
        self.query_brokers(events);
        self.query_ends(events);
        let (mut records, available) = self.take_deferred(available);
        let PollResult { arena, errors, is_empty } = self.poll_client(available);
        let (amount, mut polled) = (arena.amount(), arena.into_records());
        for record in &polled {
            self.next.insert(record.at.partition, record.at.offset.next());
        }
        // The size of a record is known only after its poll, so the last one may exceed the available amount.
        let is_alone = records.is_empty() && polled.len() == 1;
        if amount.records > available.records || (amount.bytes > available.bytes && !is_alone) {
            self.deferred.extend(polled.pop());
        }
        records.append(&mut polled);
        if !records.is_empty() {
            // Arriving records end the outage.
            self.outage.error = None;
            events.push(Event::Fetched(records));
        }
        for error in errors {
            self.handle_error(&error, events);
        }
        while let Some(event) = self.consumer.as_ref().and_then(|consumer| consumer.context().take_event()) {
            self.handle_event(event, events);
        }
        self.outage.report(events);
        is_empty
    }

    /// Takes the deferred records that fit, and returns them with the amount left for further records. It is zero while a
    /// record stays deferred, so that later records do not overtake it.
    fn take_deferred(&mut self, available: Amount) -> (Vec<FetchedRecord>, Amount) {
        let (mut taken_records, mut available, mut deferred) = (Vec::new(), available, VecDeque::new());
        for record in self.deferred.drain(..) {
            // Records of other partitions may pass: only the order within a partition matters.
            if self.paused.contains(&record.at.partition) {
                deferred.push_back(record);
                continue;
            }
            let bytes = record.bytes();
            if available.records == 0 || (bytes > available.bytes && !taken_records.is_empty()) {
                available = Amount::ZERO;
                deferred.push_back(record);
            } else {
                available.records -= 1;
                available.bytes = available.bytes.saturating_sub(bytes);
                taken_records.push(record);
            }
        }
        self.deferred = deferred;
        (taken_records, available)
    }

    /// Polls until no record is left, the amount is reached, or an event has to be handled first. Always serves the group.
    fn poll_client(&self, available: Amount) -> PollResult {
        let mut result = PollResult { arena: Arena::default(), errors: Vec::new(), is_empty: false };
        let Some(consumer) = &self.consumer else { return PollResult { is_empty: true, ..result } };
        let events = consumer.context();
        loop {
            let callbacks = events.callbacks();
            match consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => match self.names.partition(message.topic(), message.partition()) {
                    Some(partition) if self.next.contains_key(&partition) => {
                        result.arena.push(partition, &message);
                    }
                    // A record of a former assignment in the client's queue. The next owner reads it.
                    _ => {}
                },
                Some(Err(error)) => result.errors.push(error),
                // The poll made a callback instead of returning a record, and records may be queued behind it.
                None if events.callbacks() != callbacks => {}
                None => return PollResult { is_empty: true, ..result },
            }
            let taken_amount = result.arena.amount();
            let is_full = taken_amount.records >= available.records.min(MAX_POLL_AMOUNT.records)
                || taken_amount.bytes >= available.bytes.min(MAX_POLL_AMOUNT.bytes);
            if events.has_events() || !result.errors.is_empty() || (is_full && taken_amount.records > 0) {
                return result;
            }
        }
    }

    fn fail(&mut self, detail: String, events: &mut Vec<Event>) {
        // The driver ends at the first failure.
        if !std::mem::replace(&mut self.has_failed, true) {
            events.push(Event::Failed { detail });
        }
    }

    /// Handles an error of the consumer. Errors of rebalances and commits are reported elsewhere.
    fn handle_error(&mut self, error: &KafkaError, events: &mut Vec<Event>) {
        if let KafkaError::MessageConsumptionFatal(code) = error {
            return self.fail(format!("the kafka consumer can no longer be used: {code}"), events);
        }
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::AutoOffsetReset
                | RDKafkaErrorCode::OffsetOutOfRange
                | RDKafkaErrorCode::LogTruncation,
            ) => self.out_of_range = true,
            // Needs an operator. The client keeps trying.
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic,
            ) => self.outage.error = Some(error.to_string()),
            Some(RDKafkaErrorCode::PollExceeded) => {
                tracing::error!(
                    "the consumer was not polled for max.poll.interval.ms, and lost its partitions"
                );
            }
            // librdkafka retries these itself.
            _ => tracing::debug!(code = client_stats::code(error), "kafka consumer: {error}"),
        }
    }

    fn handle_event(&mut self, event: ConsumerEvent, events: &mut Vec<Event>) {
        match event {
            ConsumerEvent::Assign(list) => {
                self.assigning.push_back(list);
                self.query_brokers(events);
            }
            ConsumerEvent::Revoke { list, lost } => self.revoke(list, lost, events),
            ConsumerEvent::Ends(ends) => events.extend(
                ends.into_iter()
                    .filter(|(partition, _)| self.next.contains_key(partition))
                    .map(|(partition, end)| Event::End { partition, end }),
            ),
            ConsumerEvent::Brokers { up } => self.outage.brokers_down = !up,
        }
    }

    fn revoke(&mut self, list: TopicPartitionList, lost: bool, events: &mut Vec<Event>) {
        let revoked_partitions = self.names.partitions(&list);
        // An assignment that is not yet read needs no drain.
        self.assigning.retain(|assigned| {
            !self.names.partitions(assigned).iter().any(|partition| revoked_partitions.contains(partition))
        });
        let owned_partitions: Vec<Partition> =
            revoked_partitions.into_iter().filter(|partition| self.next.contains_key(partition)).collect();
        // Lost partitions belong to another member already, and unread ones need no drain.
        if lost || owned_partitions.is_empty() {
            for partition in &owned_partitions {
                self.forget(*partition);
            }
            self.return_partitions(&list);
            if !owned_partitions.is_empty() {
                events.push(Event::Lost(owned_partitions));
            }
        } else {
            self.revoking.push_back(PendingRevocation {
                list,
                unreleased: owned_partitions.iter().copied().collect(),
            });
            events.push(Event::Revoking(owned_partitions));
        }
    }

    fn return_partitions(&self, list: &TopicPartitionList) {
        let Some(consumer) = &self.consumer else { return };
        if let Err(why) = rebalance_events::return_partitions(consumer, list) {
            tracing::warn!("partitions could not be given back to their group: {why}");
        }
    }

    fn forget(&mut self, partition: Partition) {
        self.next.remove(&partition);
        self.paused.remove(&partition);
        self.stopped.remove(&partition);
        self.deferred.retain(|record| record.at.partition != partition);
        if let Some(committer) = &self.committer {
            committer.forget(partition);
        }
    }

    fn collect_commits(&self, events: &mut Vec<Event>) {
        for CommitOutcome { upto, result } in self.committer.iter().flat_map(Committer::take_outcomes) {
            match result {
                Ok(()) => {
                    events.extend(
                        upto.into_iter().map(|(partition, next)| Event::Committed { partition, next }),
                    );
                }
                Err(why) => events.push(Event::CommitFailed {
                    partitions: upto.into_iter().map(|(partition, _)| partition).collect(),
                    tag: why.rdkafka_error_code().map_or("refused", tag),
                    detail: why.to_string(),
                }),
            }
        }
    }

    /// Executes the steps that need an answer of the brokers. The driver repeats it until they answer.
    fn query_brokers(&mut self, events: &mut Vec<Event>) {
        if Instant::now() < self.next_query_at {
            return;
        }
        let result = self.begin_reading(events).and_then(|()| self.find_gaps(events));
        if let Err(why) = result {
            self.outage.error = Some(why.to_string());
            self.next_query_at = Instant::now() + QUERY_RETRY_PAUSE;
        }
    }

    /// Starts reading assigned partitions at the committed offset, or at the start for a group without one. That start is
    /// committed at once, so that retention before the first commit is detected as a gap.
    fn begin_reading(&mut self, events: &mut Vec<Event>) -> KafkaResult<()> {
        let Some(consumer) = &self.consumer else { return Ok(()) };
        while let Some(list) = self.assigning.front() {
            let starts = consumer.committed_offsets(list.clone(), QUERY_TIMEOUT)?;
            let mut new_offsets = Vec::new();
            let mut new_assignments = Vec::new();
            // After one timeout the other ends are not queried: each query could block the driver again.
            let mut has_timed_out = false;
            for mut element in starts.elements() {
                element.error()?;
                let Some(partition) = self.names.partition(element.topic(), element.partition()) else {
                    continue;
                };
                // Queried after the former owner's release. A new leader answers only when it knows all records reported
                // by the leader before it, so no owner has read beyond this end.
                let watermarks =
                    || consumer.fetch_watermarks(element.topic(), element.partition(), QUERY_TIMEOUT);
                let (next, end) = match element.offset() {
                    KafkaOffset::Offset(next) if has_timed_out => (next, UNKNOWN_END),
                    KafkaOffset::Offset(next) => match watermarks() {
                        Ok((_, end)) => (next, end),
                        // A partition without a leader must not keep the others from being read.
                        Err(error) => {
                            tracing::warn!(%partition, "the partition's end cannot be read, so all of it may be a replay: {error}");
                            has_timed_out = true;
                            (next, UNKNOWN_END)
                        }
                    },
                    _ => {
                        let (start, end) = watermarks()?;
                        element.set_offset(KafkaOffset::Offset(start))?;
                        new_offsets.push((partition, NextOffset(start)));
                        (start, end)
                    }
                };
                new_assignments.push((partition, NextOffset(next), NextOffset(end)));
            }
            rebalance_events::accept(consumer, &starts)?;
            // librdkafka keeps partitions paused from a former assignment.
            consumer.resume(&starts)?;
            if let Some(committer) = &self.committer {
                committer.request(new_offsets);
            }
            self.assigning.pop_front();
            for (partition, next, end) in new_assignments {
                self.next.insert(partition, next);
                events.push(Event::Assigned { partition, next, end });
            }
            self.outage.error = None;
        }
        Ok(())
    }

    /// Finds the partitions with a position below their start. librdkafka has stopped them, but does not report which.
    fn find_gaps(&mut self, events: &mut Vec<Event>) -> KafkaResult<()> {
        if !self.out_of_range {
            return Ok(());
        }
        let Some(consumer) = &self.consumer else { return Ok(()) };
        let (mut gaps, mut truncation) = (Vec::new(), None);
        for (&partition, &next) in self.next.iter().filter(|(partition, _)| !self.stopped.contains(partition))
        {
            let (topic, index) = (self.names.name(partition.topic), index_of(partition));
            let (start, end) = consumer.fetch_watermarks(topic, index, QUERY_TIMEOUT)?;
            if next.0 < start {
                gaps.push((partition, next, NextOffset(start)));
            } else if next.0 > end {
                truncation = Some(format!(
                    "{partition} ends at {end}, but the group has read to {next}: records are missing"
                ));
            } else {
                // In range again, as after a change of leader: continue at its position.
                consumer.seek(topic, index, KafkaOffset::Offset(next.0), Duration::ZERO)?;
            }
        }
        self.out_of_range = false;
        self.outage.error = None;
        for (partition, committed, start) in gaps {
            self.stopped.insert(partition);
            events.push(Event::Gap { partition, committed, start });
        }
        if let Some(detail) = truncation {
            // New records would reuse the missing offsets, so continuing would skip content.
            self.fail(detail, events);
        }
        Ok(())
    }

    /// Reports the answer to the last query for the ends, and sends the next one once an interval.
    fn query_ends(&mut self, events: &mut Vec<Event>) {
        let Some(end_queries) = &self.end_queries else { return };
        if let Some(EndAnswer { asked_at, ends }) = end_queries.take_answer() {
            // Brokers report only replicated records, so one with an earlier append time may still follow.
            let complete_until = asked_at.minus(self.max_replication_delay);
            events.push(Event::EndSnapshot { complete_until, ends });
        }
        let current_time = Instant::now();
        if current_time >= self.next_end_query_at && !self.next.is_empty() {
            self.next_end_query_at = current_time + END_QUERY_INTERVAL;
            end_queries.request(self.next.keys().copied().collect());
        }
    }

    fn list(&self, partitions: impl Iterator<Item = Partition>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(self.names.name(partition.topic), index_of(partition));
        }
        list
    }
}

impl Engine for KafkaEngine {
    // `poll` sleeps on the driver's wakeup, which librdkafka notifies too.
    const DEAF_FOR: Duration = Duration::from_secs(1);

    // A new leader may stamp records with a clock that is behind that of its predecessor.
    const APPEND_TIME_STEP: Duration = Duration::from_secs(5);

    fn poll(&mut self, wait: Duration, available: Amount) -> Vec<Event> {
        let mut events = Vec::new();
        if self.collect(available, &mut events) && events.is_empty() {
            let has_query = !self.assigning.is_empty() || self.out_of_range;
            // A query without an answer has to be repeated soon.
            self.wakeup.wait_up_to(if has_query { wait.min(QUERY_RETRY_PAUSE) } else { wait });
            self.collect(available, &mut events);
        }
        events
    }

    fn pause(&mut self, partitions: &[Partition]) {
        let owned_partitions: Vec<Partition> =
            partitions.iter().copied().filter(|partition| self.next.contains_key(partition)).collect();
        let list = self.list(owned_partitions.iter().copied());
        self.paused.extend(owned_partitions);
        if let Some(consumer) = &self.consumer
            && let Err(why) = consumer.pause(&list)
        {
            tracing::warn!("partitions could not be paused: {why}");
        }
    }

    fn resume(&mut self, partitions: &[Partition]) {
        let readable: Vec<Partition> = partitions
            .iter()
            .copied()
            .filter(|partition| self.next.contains_key(partition) && !self.stopped.contains(partition))
            .collect();
        for partition in &readable {
            self.paused.remove(partition);
        }
        let list = self.list(readable.into_iter());
        if let Some(consumer) = &self.consumer
            && let Err(why) = consumer.resume(&list)
        {
            tracing::warn!("partitions could not be resumed: {why}");
        }
    }

    fn commit(&mut self, upto: &[(Partition, NextOffset)]) {
        if let Some(committer) = &self.committer {
            committer.request(upto.iter().copied());
        }
    }

    fn release(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.forget(*partition);
            for revoking in &mut self.revoking {
                revoking.unreleased.remove(partition);
            }
        }
        // Revocations are answered in their order, each after the release of all its partitions.
        while let Some(revoking) = self.revoking.pop_front_if(|revoking| revoking.unreleased.is_empty()) {
            self.return_partitions(&revoking.list);
        }
    }

    fn close(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        let (committer, end_queries) = (self.committer.take(), self.end_queries.take());
        while let Some(revoking) = self.revoking.pop_front() {
            if let Err(why) = rebalance_events::return_partitions(&consumer, &revoking.list) {
                tracing::warn!("partitions could not be given back to their group: {why}");
            }
        }
        consumer.context().close();
        let (done, left_signal) = mpsc::channel();
        let leave_thread = std::thread::Builder::new().name("leave-group".to_owned()).spawn(move || {
            // The join and the drop wait for brokers without a limit, so they run on a thread of their own. Dropping the last
            // reference to the consumer leaves the group.
            if let Some(committer) = committer {
                committer.join();
            }
            if let Some(end_queries) = end_queries {
                end_queries.join();
            }
            drop(consumer);
            // The caller may have timed out.
            done.send(()).ok();
        });
        if leave_thread.is_err() || left_signal.recv_timeout(LEAVE_TIMEOUT).is_err() {
            tracing::warn!(
                "leaving the group timed out; the brokers remove this member after its session timeout"
            );
        }
    }
}

// A panicking driver does not call `close`, and its other threads would keep the consumer in its group.
impl Drop for KafkaEngine {
    fn drop(&mut self) {
        Engine::close(self);
    }
}

/// Tag of a refused commit.
const fn tag(code: RDKafkaErrorCode) -> &'static str {
    match code {
        RDKafkaErrorCode::IllegalGeneration | RDKafkaErrorCode::StaleMemberEpoch => "stale_generation",
        RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::FencedInstanceId => "not_a_member",
        RDKafkaErrorCode::RebalanceInProgress | RDKafkaErrorCode::AssignmentLost => "rebalance",
        RDKafkaErrorCode::NotCoordinator
        | RDKafkaErrorCode::CoordinatorNotAvailable
        | RDKafkaErrorCode::CoordinatorLoadInProgress
        | RDKafkaErrorCode::WaitingForCoordinator => "no_coordinator",
        RDKafkaErrorCode::OperationTimedOut
        | RDKafkaErrorCode::RequestTimedOut
        | RDKafkaErrorCode::TimedOutQueue
        | RDKafkaErrorCode::BrokerTransportFailure => "unreachable",
        _ => "refused",
    }
}
