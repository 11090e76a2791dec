//! Topics of the benches, and what stands in them afterwards.
//!
//! It sends nothing: `ceiling` and the service do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
};

use crate::items::{self, Pool};

const WAIT: Duration = Duration::from_secs(30);

pub struct Topic {
    brokers: String,
    name: String,
    partitions: i32,
}

/// Where each partition of a topic ended.
#[derive(Clone, Debug)]
pub struct Ends(Vec<i64>);

/// What was read between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub records: u64,
    pub items: u64,
}

/// Where a record names its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// In its value, each before its text.
    Value,
    /// In its key; the value is the text.
    Key,
}

impl Topic {
    pub fn named(brokers: &str, name: &str, partitions: i32) -> Self {
        Self { brokers: brokers.to_owned(), name: name.to_owned(), partitions }
    }

    pub async fn create(&self) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let topic = NewTopic::new(&self.name, self.partitions, TopicReplication::Fixed(1));
        for made in admin.create_topics(&[topic], &AdminOptions::new()).await? {
            made.map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))?;
        }
        Ok(())
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    fn consumer(&self) -> Result<BaseConsumer> {
        let mut config = self.config();
        config.set("group.id", "benches").set("enable.auto.commit", "false");
        Ok(config.create()?)
    }

    /// Blocks.
    pub fn ends(&self) -> Result<Ends> {
        let consumer = self.consumer()?;
        let end = |partition| {
            let until = Instant::now() + WAIT;
            loop {
                match consumer.fetch_watermarks(&self.name, partition, WAIT) {
                    Ok((_, end)) => return Ok(end),
                    // A topic that was just made has no leader yet.
                    Err(error) if Instant::now() > until => return Err(error.into()),
                    Err(_) => {}
                }
            }
        };
        Ok(Ends((0..self.partitions).map(end).collect::<Result<_>>()?))
    }

    /// Holds what was written since `from` to be the items from `first` on, `count` of them, each once and with its
    /// text. Blocks.
    pub fn verify(&self, from: &Ends, pool: &Pool, names: Names, first: u64, count: u64) -> Result<Content> {
        let to = self.ends()?;
        let consumer = self.consumer()?;
        let mut wanted = TopicPartitionList::new();
        let mut left: u64 = 0;
        for (partition, (from, to)) in (0_i32..).zip(from.0.iter().zip(&to.0)) {
            wanted.add_partition_offset(&self.name, partition, Offset::Offset(*from))?;
            left += to.abs_diff(*from);
        }
        consumer.assign(&wanted)?;
        let mut seen = vec![false; usize::try_from(count)?];
        let mut content = Content { records: left, items: 0 };
        let until = Instant::now() + Duration::from_secs(120);
        while left > 0 {
            ensure!(Instant::now() < until, "{left} records of {} did not come", self.name);
            let Some(message) = consumer.poll(Duration::from_millis(200)) else { continue };
            let message = message?;
            left -= 1;
            let value = message.payload().unwrap_or_default();
            let found = match names {
                Names::Value => items::find(value),
                Names::Key => items::find(message.key().unwrap_or_default()),
            };
            ensure!(!found.is_empty(), "a record of {} names no item", self.name);
            for item in found {
                let whole = match names {
                    Names::Value => items::has_data(pool, value, item),
                    Names::Key => value == pool.data(item.text).as_bytes(),
                };
                ensure!(whole, "item {} lost its text", item.number);
                let at = item.number.checked_sub(first).and_then(|at| usize::try_from(at).ok());
                let Some(seen) = at.and_then(|at| seen.get_mut(at)) else {
                    bail!("item {} was never acknowledged", item.number);
                };
                ensure!(!std::mem::replace(seen, true), "item {} stands there twice", item.number);
                content.items += 1;
            }
        }
        let lost = seen.iter().filter(|seen| !**seen).count();
        ensure!(lost == 0, "{lost} of {count} acknowledged items are not in {}", self.name);
        Ok(content)
    }
}

/// As [`Topic::ends`] and [`Topic::verify`], from async code.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("a look into kafka panicked")?
}
