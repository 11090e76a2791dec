//! A consumer of Kafka under the driver: fetches, follows the group, commits, and stops at gaps.
//!
//! It keeps no promise by itself: what may be committed, and when a partition may go, the driver says.

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
    committer::{Answer, Committer},
    context::{self, Context, Names, Note},
    index_of,
    observe::{self, BrokerHealth},
    settings::Settings,
};
use crate::{
    budget::Charge,
    engine::{self, Event},
    record::Fetched,
    signal::Signal,
    topics::{NextOffset, Partition, Topic},
};

/// What one poll takes at most: the driver wants to hear of completions in between.
const LARGEST_POLL: Charge = Charge { records: 4_096, bytes: 4 << 20 };
/// Between two attempts at something that the brokers did not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one question to the brokers may hold up the driver. What is not answered is asked again.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where a partition ends of which nobody says it: everything in it may have been read before.
const UNKNOWN_END: i64 = i64::MAX;
/// How long leaving the group may take: with the brokers gone it never ends by itself.
const LEAVE: Duration = Duration::from_secs(5);

/// Partitions that the group wants back.
struct Revoking {
    list: TopicPartitionList,
    left: BTreeSet<Partition>,
}

/// Why nothing comes, and whether the driver knows.
#[derive(Default)]
struct Outage {
    down: bool,
    fault: Option<String>,
    told: bool,
}

impl Outage {
    fn tell(&mut self, events: &mut Vec<Event>) {
        let out = self.down || self.fault.is_some();
        if out == std::mem::replace(&mut self.told, out) {
            return;
        }
        events.push(if out {
            let detail = self.fault.clone().unwrap_or_else(|| "no kafka broker is reachable".to_owned());
            Event::Unreachable { detail }
        } else {
            Event::Reachable
        });
    }
}

/// What a look into librdkafka brought.
struct Catch {
    arena: Arena,
    faults: Vec<KafkaError>,
    /// Nothing more is there.
    drained: bool,
}

pub(super) struct Engine {
    /// None once closed.
    consumer: Option<Arc<BaseConsumer<Context>>>,
    committer: Option<Committer>,
    names: Arc<Names>,
    signal: Arc<Signal>,
    health: Arc<BrokerHealth>,
    /// Where reading goes on, of every partition that the driver was told is ours.
    next: BTreeMap<Partition, NextOffset>,
    paused: BTreeSet<Partition>,
    /// At a gap: never resumed.
    stopped: BTreeSet<Partition>,
    /// Taken out of librdkafka, but not told yet: there was no room.
    held: VecDeque<Fetched>,
    /// Assigned by the group; reading begins once it is known where.
    assigning: VecDeque<TopicPartitionList>,
    revoking: VecDeque<Revoking>,
    /// Some position is outside its partition; librdkafka does not say which.
    out_of_range: bool,
    /// No question to the brokers before this.
    ask_at: Instant,
    outage: Outage,
    failed: bool,
}

impl Engine {
    /// Joins the group. Asks the brokers nothing yet.
    pub(super) fn open(
        settings: &Settings,
        group_id: &str,
        topics: &[Topic],
        names: Arc<Names>,
        health: Arc<BrokerHealth>,
        signal: Arc<Signal>,
    ) -> Result<Self, String> {
        let config = settings.consumer(group_id)?;
        let context = Context::new(Arc::clone(&names), Arc::clone(&health));
        let mut consumer: BaseConsumer<Context> =
            config.create_with_context(context).map_err(|why| super::creation(&why))?;
        let ring = Arc::clone(&signal);
        consumer.set_nonempty_callback(move || ring.ring());
        let topics: Vec<&str> = topics.iter().map(|topic| names.kafkas(*topic)).collect();
        consumer.subscribe(&topics).map_err(|why| why.to_string())?;
        let consumer = Arc::new(consumer);
        let committer = Committer::start(Arc::clone(&consumer), Arc::clone(&names), Arc::clone(&signal))
            .map_err(|why| format!("no thread for commits: {why}"))?;
        Ok(Self {
            consumer: Some(consumer),
            committer: Some(committer),
            names,
            signal,
            health,
            next: BTreeMap::new(),
            paused: BTreeSet::new(),
            stopped: BTreeSet::new(),
            held: VecDeque::new(),
            assigning: VecDeque::new(),
            revoking: VecDeque::new(),
            out_of_range: false,
            ask_at: Instant::now(),
            outage: Outage::default(),
            failed: false,
        })
    }

    /// Everything that can be had without waiting, in order. True: nothing more is there.
    fn sweep(&mut self, room: Charge, events: &mut Vec<Event>) -> bool {
        self.hear_of_commits(events);
        if let Some(why) = self.health.fatal_reason() {
            let detail = why.to_owned();
            self.fail(detail, events);
        }
        self.ask_brokers(events);
        let (mut records, room) = self.take_held(room);
        let Catch { arena, faults, drained } = self.catch(room);
        let (charge, mut caught) = (arena.charge(), arena.into_records());
        for record in &caught {
            self.next.insert(record.at.partition, record.at.offset.next());
        }
        // How large a record is shows only when it is out; then the last one may be one too many.
        let alone = records.is_empty() && caught.len() == 1;
        if charge.records > room.records || (charge.bytes > room.bytes && !alone) {
            self.held.extend(caught.pop());
        }
        records.append(&mut caught);
        if !records.is_empty() {
            self.outage.fault = None;
            events.push(Event::Fetched(records));
        }
        for fault in faults {
            self.suffer(&fault, events);
        }
        while let Some(note) = self.consumer.as_ref().and_then(|consumer| consumer.context().take_note()) {
            self.follow(note, events);
        }
        self.outage.tell(events);
        drained
    }

    /// What waited for room, and the room after it: none while something still waits, or records would pass each other.
    fn take_held(&mut self, room: Charge) -> (Vec<Fetched>, Charge) {
        let (mut taken, mut left, mut kept) = (Vec::new(), room, VecDeque::new());
        for record in self.held.drain(..) {
            if self.paused.contains(&record.at.partition) {
                kept.push_back(record);
                continue;
            }
            let bytes = record.bytes();
            if left.records == 0 || (bytes > left.bytes && !taken.is_empty()) {
                left = Charge::default();
                kept.push_back(record);
            } else {
                left.records -= 1;
                left.bytes = left.bytes.saturating_sub(bytes);
                taken.push(record);
            }
        }
        self.held = kept;
        (taken, left)
    }

    /// Polls until there is nothing, no room, or something to tell first. Always serves the group.
    fn catch(&self, room: Charge) -> Catch {
        let mut catch = Catch { arena: Arena::default(), faults: Vec::new(), drained: false };
        let Some(consumer) = &self.consumer else { return Catch { drained: true, ..catch } };
        let context = consumer.context();
        loop {
            let served = context.served();
            match consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => match self.names.partition(message.topic(), message.partition()) {
                    Some(partition) if self.next.contains_key(&partition) => {
                        catch.arena.push(partition, &message);
                    }
                    // Left in a queue by an assignment that is gone: its next owner reads it.
                    _ => {}
                },
                Some(Err(fault)) => catch.faults.push(fault),
                // Something else than a record was served, and records may stand behind it.
                None if context.served() != served => {}
                None => return Catch { drained: true, ..catch },
            }
            let taken = catch.arena.charge();
            let enough = taken.records >= room.records.min(LARGEST_POLL.records)
                || taken.bytes >= room.bytes.min(LARGEST_POLL.bytes);
            if context.has_notes() || !catch.faults.is_empty() || (enough && taken.records > 0) {
                return catch;
            }
        }
    }

    fn fail(&mut self, detail: String, events: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.failed, true) {
            events.push(Event::Failed { detail });
        }
    }

    /// What a fault of the consumer means. Rebalances and commits tell their own.
    fn suffer(&mut self, fault: &KafkaError, events: &mut Vec<Event>) {
        if let KafkaError::MessageConsumptionFatal(code) = fault {
            return self.fail(format!("the kafka consumer can no longer be used: {code}"), events);
        }
        match fault.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::AutoOffsetReset
                | RDKafkaErrorCode::OffsetOutOfRange
                | RDKafkaErrorCode::LogTruncation,
            ) => self.out_of_range = true,
            // The operator's to mend, while we try on.
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic,
            ) => self.outage.fault = Some(fault.to_string()),
            Some(RDKafkaErrorCode::PollExceeded) => {
                tracing::error!(
                    "the consumer was not polled for max.poll.interval.ms, and lost its partitions"
                );
            }
            _ => tracing::debug!(code = observe::code(fault), "kafka consumer: {fault}"),
        }
    }

    fn follow(&mut self, note: Note, events: &mut Vec<Event>) {
        match note {
            Note::Assign(list) => {
                self.assigning.push_back(list);
                self.ask_brokers(events);
            }
            Note::Revoke { list, lost } => self.revoke(list, lost, events),
            Note::Ends(ends) => events.extend(
                ends.into_iter()
                    .filter(|(partition, _)| self.next.contains_key(partition))
                    .map(|(partition, end)| Event::End { partition, end }),
            ),
            Note::Brokers { up } => self.outage.down = !up,
        }
    }

    fn revoke(&mut self, list: TopicPartitionList, lost: bool, events: &mut Vec<Event>) {
        let revoked = self.names.partitions(&list);
        // What was not begun needs no drain.
        self.assigning.retain(|assigned| {
            !self.names.partitions(assigned).iter().any(|partition| revoked.contains(partition))
        });
        let told: Vec<Partition> =
            revoked.into_iter().filter(|partition| self.next.contains_key(partition)).collect();
        if lost || told.is_empty() {
            for partition in &told {
                self.forget(*partition);
            }
            self.let_go(&list);
            if !told.is_empty() {
                events.push(Event::Lost(told));
            }
        } else {
            self.revoking.push_back(Revoking { list, left: told.iter().copied().collect() });
            events.push(Event::Revoking(told));
        }
    }

    fn let_go(&self, list: &TopicPartitionList) {
        let Some(consumer) = &self.consumer else { return };
        if let Err(why) = context::let_go(consumer, list) {
            tracing::warn!("partitions could not be given back to their group: {why}");
        }
    }

    fn forget(&mut self, partition: Partition) {
        self.next.remove(&partition);
        self.paused.remove(&partition);
        self.stopped.remove(&partition);
        self.held.retain(|record| record.at.partition != partition);
        if let Some(committer) = &self.committer {
            committer.forget(partition);
        }
    }

    fn hear_of_commits(&self, events: &mut Vec<Event>) {
        for Answer { upto, result } in self.committer.iter().flat_map(Committer::answers) {
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

    /// What can only be done with an answer of the brokers, and is tried until there is one.
    fn ask_brokers(&mut self, events: &mut Vec<Event>) {
        if Instant::now() < self.ask_at {
            return;
        }
        let answered = self.begin_assigned(events).and_then(|()| self.find_gaps(events));
        if let Err(why) = answered {
            self.outage.fault = Some(why.to_string());
            self.ask_at = Instant::now() + PAUSE;
        }
    }

    /// Begins reading what the group assigned: at the committed offset, or at the start for a group that never was
    /// there. That start is committed at once, so that what retention eats before the first commit is seen as a gap.
    fn begin_assigned(&mut self, events: &mut Vec<Event>) -> KafkaResult<()> {
        let Some(consumer) = &self.consumer else { return Ok(()) };
        while let Some(list) = self.assigning.front() {
            let starts = consumer.committed_offsets(list.clone(), PATIENCE)?;
            let mut fresh = Vec::new();
            let mut assigned = Vec::new();
            // One broker that does not answer is waited for once.
            let mut is_silent = false;
            for mut element in starts.elements() {
                element.error()?;
                let Some(partition) = self.names.partition(element.topic(), element.partition()) else {
                    continue;
                };
                // Asked after the former owner has let go, and a new leader answers only once it knows all that the
                // one before it had told: so nobody has read beyond this end.
                let ask = || consumer.fetch_watermarks(element.topic(), element.partition(), PATIENCE);
                let (next, end) = match element.offset() {
                    KafkaOffset::Offset(next) if is_silent => (next, UNKNOWN_END),
                    KafkaOffset::Offset(next) => match ask() {
                        Ok((_, end)) => (next, end),
                        // A partition without a leader must not keep the others from being read.
                        Err(why) => {
                            tracing::warn!(%partition, "its end cannot be had, so all of it may be a replay: {why}");
                            is_silent = true;
                            (next, UNKNOWN_END)
                        }
                    },
                    _ => {
                        let (start, end) = ask()?;
                        element.set_offset(KafkaOffset::Offset(start))?;
                        fresh.push((partition, NextOffset(start)));
                        (start, end)
                    }
                };
                assigned.push((partition, NextOffset(next), NextOffset(end)));
            }
            context::take(consumer, &starts)?;
            // A pause of an assignment before this one is not this one's.
            consumer.resume(&starts)?;
            if let Some(committer) = &self.committer {
                committer.ask(fresh);
            }
            self.assigning.pop_front();
            for (partition, next, end) in assigned {
                self.next.insert(partition, next);
                events.push(Event::Assigned { partition, next, end });
            }
            self.outage.fault = None;
        }
        Ok(())
    }

    /// Finds the partitions whose position retention has passed. librdkafka stopped them, and says only that there are.
    fn find_gaps(&mut self, events: &mut Vec<Event>) -> KafkaResult<()> {
        if !self.out_of_range {
            return Ok(());
        }
        let Some(consumer) = &self.consumer else { return Ok(()) };
        let (mut gaps, mut beyond) = (Vec::new(), None);
        for (&partition, &next) in self.next.iter().filter(|(partition, _)| !self.stopped.contains(partition))
        {
            let (topic, index) = (self.names.kafkas(partition.topic), index_of(partition));
            let (start, end) = consumer.fetch_watermarks(topic, index, PATIENCE)?;
            if next.0 < start {
                gaps.push((partition, next, NextOffset(start)));
            } else if next.0 > end {
                beyond = Some(format!(
                    "{partition} ends at {end}, but the group has read to {next}: records are gone"
                ));
            } else {
                // In range by now, as after a change of leader: reading goes on where it stood.
                consumer.seek(topic, index, KafkaOffset::Offset(next.0), Duration::ZERO)?;
            }
        }
        self.out_of_range = false;
        self.outage.fault = None;
        for (partition, committed, start) in gaps {
            self.stopped.insert(partition);
            events.push(Event::Gap { partition, committed, start });
        }
        if let Some(detail) = beyond {
            self.fail(detail, events);
        }
        Ok(())
    }

    fn list(&self, partitions: impl Iterator<Item = Partition>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(self.names.kafkas(partition.topic), index_of(partition));
        }
        list
    }
}

impl engine::Engine for Engine {
    // It sleeps on the driver's signal, which librdkafka rings too.
    const DEAF_FOR: Duration = Duration::from_secs(1);

    fn poll(&mut self, wait: Duration, room: Charge) -> Vec<Event> {
        let mut events = Vec::new();
        if self.sweep(room, &mut events) && events.is_empty() {
            let asks = !self.assigning.is_empty() || self.out_of_range;
            self.signal.wait(if asks { wait.min(PAUSE) } else { wait });
            self.sweep(room, &mut events);
        }
        events
    }

    fn pause(&mut self, partitions: &[Partition]) {
        let owned: Vec<Partition> =
            partitions.iter().copied().filter(|partition| self.next.contains_key(partition)).collect();
        let list = self.list(owned.iter().copied());
        self.paused.extend(owned);
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
            committer.ask(upto.iter().copied());
        }
    }

    fn release(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.forget(*partition);
            for revoking in &mut self.revoking {
                revoking.left.remove(partition);
            }
        }
        while let Some(revoking) = self.revoking.pop_front_if(|revoking| revoking.left.is_empty()) {
            self.let_go(&revoking.list);
        }
    }

    fn close(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        let committer = self.committer.take();
        while let Some(revoking) = self.revoking.pop_front() {
            if let Err(why) = context::let_go(&consumer, &revoking.list) {
                tracing::warn!("partitions could not be given back to their group: {why}");
            }
        }
        consumer.context().close();
        let (left, has_left) = mpsc::channel();
        let leaving = std::thread::Builder::new().name("leave-group".to_owned()).spawn(move || {
            // Both wait for brokers without limit, so nobody waits for this thread without one. Dropping the consumer
            // leaves the group, and it is dropped with its last user.
            if let Some(committer) = committer {
                committer.end();
            }
            drop(consumer);
            // Whoever waited may have given up.
            left.send(()).ok();
        });
        if leaving.is_err() || has_left.recv_timeout(LEAVE).is_err() {
            tracing::warn!("the group was not left in time: its brokers will notice by themselves");
        }
    }
}

// A driver that panics closes nothing, and the thread that commits would keep the consumer in its group.
impl Drop for Engine {
    fn drop(&mut self) {
        engine::Engine::close(self);
    }
}

/// A refused commit's stable name.
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
