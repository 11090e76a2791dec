//! Items from their record to their effects: what stands already, evaluation on the pool, facts, plan, apply.
//!
//! It neither orders nor retries (`worker`), and decides nothing about an item (`tidegate-moderation`).

use std::sync::Arc;

use tidegate_catalog::{self as catalog, Compiled};
use tidegate_moderation::{
    self as moderation,
    effects::{self, Again, Claim, Plan, Refused},
    items::{
        context_media,
        evaluate::{self, Begun, Prepared},
        stored::{self, Submission},
        submissions::{self, Standing},
    },
    media::{self, Wanted},
    reevaluation::retroact,
    rules::windows::Moment,
};
use tidegate_rules::{Outcome, Scan};
use tidegate_schemas::{
    ids::ConfigVersion,
    records::{self, Coordinates, ItemEntry, Record as _, Source},
};
use tidegate_stream::Topic;
use uuid::Uuid;

use crate::{
    consumer::error::TaskError,
    consumer::handler::{DeadPart, Handler, Job, Part},
    consumer::key_queues::Key,
    consumer::slot::ConcurrencySlot,
    items::compute_pool::Pool,
    items::fact_lookup::{Asking, Desk},
    items::media_wait::{Asker, Looked, Looking},
    items::rule_counters::Tally,
    items::rule_limits::{Allowances, Applicant},
    items::window_order::Turn,
};

pub(crate) struct Items {
    deps: moderation::Deps,
    pool: Pool,
    facts: Desk,
    allowances: Allowances,
    tally: Tally,
    looking: Looking,
}

type ItemJob = Job<records::Items>;

/// How far the pool came with an item.
enum Step {
    Decided(Decided),
    /// The item is to be counted, or rules wait for facts.
    Waiting(Box<(Prepared, Scan)>),
}

/// Where an item goes first.
enum First {
    /// Media are to be looked at before anything is evaluated.
    Looking(Box<(Prepared, Begun, Vec<Wanted>)>),
    On(Step),
}

enum Decided {
    Planned(Box<Plan>),
    /// Rules that are about to act have limits.
    Asking(Box<(Prepared, Outcome, Vec<Claim>)>),
}

impl Items {
    pub(crate) fn new(
        deps: moderation::Deps,
        pool: Pool,
        facts: Desk,
        allowances: Allowances,
        tally: Tally,
        looking: Looking,
    ) -> Self {
        Self { deps, pool, facts, allowances, tally, looking }
    }

    async fn config(&self, job: &ItemJob, part: usize) -> Result<Arc<Compiled>, TaskError> {
        let header = &job.record;
        if let Some(config) = self.deps.live.org(&header.org)
            && config.version() >= header.config_version
        {
            return Ok(config);
        }
        let written_at = submission(job, part).at.append_ms;
        let found = effects::config(&self.deps, &header.org, header.config_version, written_at);
        Ok(Box::pin(found).await?)
    }

    /// `None`: the item waits for its media elsewhere.
    async fn plan(
        &self,
        job: Arc<ItemJob>,
        part: usize,
        no_reviews: Option<&'static str>,
        slot: &ConcurrencySlot,
        turn: Option<Turn>,
    ) -> Result<Option<Plan>, TaskError> {
        let (org, moment) = (&job.record.org, moment(&job, part));
        let config = self.config(&job, part).await?;
        let here = config.version();
        let begun = {
            let job = Arc::clone(&job);
            self.pool.run(move || begin(&job, part, config, no_reviews)).await?
        };
        let step = match begun.map_err(|error| not_here_yet(error, &job.record, here))? {
            First::On(step) => {
                if let Step::Waiting(waiting) = &step {
                    self.facts.count(org, moment, &waiting.1).await?;
                }
                drop(turn);
                step
            }
            // Counted before anything is waited for, so that media that are slow change no order.
            First::Looking(looking) => {
                if let Begun::Waiting(scan) = &looking.1 {
                    self.facts.count(org, moment, scan).await?;
                }
                drop(turn);
                match Box::pin(self.look(&job, part, *looking, no_reviews, slot)).await? {
                    Some(step) => step,
                    None => return Ok(None),
                }
            }
        };
        let decided = match step {
            Step::Decided(decided) => decided,
            Step::Waiting(waiting) => {
                let (prepared, scan) = *waiting;
                let facts = {
                    let asking = Asking { org, moment, plan: prepared.config.plan(), media: &prepared.media };
                    Box::pin(self.facts.fetch(asking, &scan)).await?
                };
                let job = Arc::clone(&job);
                let finish = move || {
                    let outcome = evaluate::finish(&prepared, scan, &facts);
                    decide(&job, part, prepared, outcome, no_reviews)
                };
                self.pool.run(finish).await?
            }
        };
        match decided {
            Decided::Planned(plan) => Ok(Some(*plan)),
            Decided::Asking(asking) => Box::pin(self.ask(&job, part, *asking, no_reviews)).await.map(Some),
        }
    }

    /// Waits for the item's media, then goes on with it; `None`: it was handed over to whoever waits longer.
    async fn look(
        &self,
        job: &Arc<ItemJob>,
        part: usize,
        (mut prepared, mut begun, wanted): (Prepared, Begun, Vec<Wanted>),
        no_reviews: Option<&'static str>,
        slot: &ConcurrencySlot,
    ) -> Result<Option<Step>, TaskError> {
        let bytes = job.record.items[part].data.len();
        let asker = Asker { org: &job.record.org, item: &prepared.key, bytes, ticket: &job.ticket, slot };
        match self.looking.look(asker, &wanted).await {
            Looked::Found(found) => {
                // It may have been waited for long: what is configured by now counts.
                let config = self.config(job, part).await?;
                let here = config.version();
                let is_changed = here != prepared.config.version();
                let again = Arc::clone(job);
                let go_on = move || {
                    if is_changed {
                        prepared = prepare(&again, part, config)?;
                        begun = evaluate::begin(&prepared);
                    }
                    prepared.judge(&found);
                    Ok(proceed(&again, part, prepared, begun, no_reviews))
                };
                let step: Result<Step, moderation::Error> = self.pool.run(go_on).await?;
                let step = step.map_err(|error| not_here_yet(error, &job.record, here))?;
                if is_changed && let Step::Waiting(waiting) = &step {
                    self.facts.count(&job.record.org, moment(job, part), &waiting.1).await?;
                }
                Ok(Some(step))
            }
            Looked::Later(media) => {
                let (submission, version) = (submission(job, part), prepared.config.version());
                submissions::accept(&self.deps, &submission, version, &media, job.is_resent).await?;
                Ok(None)
            }
            Looked::Left => Err(TaskError::AssignmentLost),
        }
    }

    /// Looks at the media of an item that came along with something else, once for all of its entries; nothing is
    /// evaluated.
    async fn look_aside(
        &self,
        job: &Arc<ItemJob>,
        part: usize,
        cause: Uuid,
        slot: &ConcurrencySlot,
    ) -> Result<(), TaskError> {
        let (items, org) = (&job.record.items, &job.record.org);
        let entries = context_media::together(items, part);
        if entries.is_empty() {
            return Ok(());
        }
        let config = self.config(job, part).await?;
        let wanted = context_media::wanted(&config, &entries);
        if wanted.is_empty() {
            return Ok(());
        }
        let item = items[part].key();
        let bytes = entries.iter().map(|entry| entry.data.len()).sum();
        let asker = Asker { org, item: &item, bytes, ticket: &job.ticket, slot };
        let found = match self.looking.look(asker, &wanted).await {
            Looked::Found(found) => found,
            // It came to those who wait longest.
            Looked::Later(_) => return Ok(()),
            Looked::Left => return Err(TaskError::AssignmentLost),
        };
        let (banks, id) = (config.hash_banks(), item.id.clone());
        let judge = move || media::judge(&banks, id.as_str(), &found).shown;
        let media = self.pool.run(judge).await?;
        Ok(context_media::keep(&self.deps, org, cause, &item, &media, job.written_at).await?)
    }

    async fn ask(
        &self,
        job: &ItemJob,
        part: usize,
        (prepared, outcome, claims): (Prepared, Outcome, Vec<Claim>),
        no_reviews: Option<&'static str>,
    ) -> Result<Plan, TaskError> {
        let submission = submission(job, part);
        let applicant = Applicant {
            org: &submission.header.org,
            submission: submission.entry.submission_id,
            at: submission.at.append_ms,
        };
        let refused = self.allowances.ask(applicant, &claims).await?;
        tidegate_stream::failpoint!("after_limits");
        Ok(submissions::plan(&submission, &prepared, &outcome, no_reviews, &refused, None))
    }

    /// Lets named rules act on what a stored item was when it came in.
    async fn repeat(
        &self,
        job: &ItemJob,
        part: usize,
        no_reviews: Option<&'static str>,
    ) -> Result<(), TaskError> {
        let (deps, submission) = (&self.deps, submission(job, part));
        let org = &submission.header.org;
        let repeat = retroact::repeat_of(deps, &submission).await?;
        let config = self.config(job, part).await?;
        let (prepared, outcome) =
            retroact::evaluate(deps, config, &submission, &repeat, self.facts.window_rows()).await?;
        let taken = retroact::taken(&deps.store, org, &prepared.key).await?;
        let again = Again { original: repeat.original, taken: &taken };
        let superseded = retroact::is_superseded(&deps.store, org, &prepared.key, &repeat).await?;
        let refused = if superseded {
            Refused::new()
        } else {
            let claims = submissions::claims(&submission, &prepared, &outcome, no_reviews, Some(again));
            let at = submission.at.append_ms;
            let applicant = Applicant { org, submission: submission.entry.submission_id, at };
            self.allowances.ask(applicant, &claims).await?
        };
        let mut plan = submissions::plan(&submission, &prepared, &outcome, no_reviews, &refused, Some(again));
        if superseded {
            plan.supersede()?;
        }
        let outcomes = submissions::carry_out(deps, &submission, plan).await?;
        self.tally.count(org, submission.at.append_ms, &outcomes);
        Ok(())
    }

    /// Only what comes in is counted.
    fn line_up(&self, job: &ItemJob, part: usize) -> Option<Turn> {
        let org = &job.record.org;
        let is_new = job.context_of.is_none() && job.record.source != Source::Retroact;
        let counts =
            || self.deps.live.org(org).is_some_and(|config| config.plan().windows().next().is_some());
        (is_new && counts()).then(|| self.facts.turn(org, moment(job, part)))
    }

    /// Whether a newer version of the item is stored. Acting on the older one now would overtake it.
    async fn is_superseded(&self, submission: &Submission<'_>) -> Result<bool, TaskError> {
        let (org, key) = (&submission.header.org, submission.entry.key());
        if submission.header.source == Source::Retroact {
            let repeat = retroact::repeat_of(&self.deps, submission).await?;
            return Ok(retroact::is_superseded(&self.deps.store, org, &key, &repeat).await?);
        }
        let newest = stored::newest_place(&self.deps.store, org, &key).await?;
        let at = submission.at;
        let own = (at.append_ms, at.offset, i64::from(at.position));
        Ok(newest.is_some_and(|row| stored::coordinates(&row) > own))
    }
}

impl Handler for Items {
    type Record = records::Items;
    type Guard = Option<Turn>;

    fn parts(record: &records::Items) -> Vec<(Key, usize)> {
        let key = |entry: &ItemEntry| Key { org: record.org.clone(), item: entry.key() };
        record.items.iter().map(|entry| (key(entry), entry.data.len())).collect()
    }

    /// A resent item keeps its coordinates, and so its order among the versions of the item. Media context is resent with
    /// all entries that share its row.
    fn dead_part(job: &ItemJob, part: usize) -> DeadPart {
        let entry = &job.record.items[part];
        let entries = if job.context_of.is_some() {
            context_media::together(&job.record.items, part).into_iter().cloned().collect()
        } else {
            let at = submission(job, part).at;
            vec![ItemEntry { origin: Some(at), ..entry.clone() }]
        };
        DeadPart { datum: job.record.with(entries).to_datum(), submission_id: Some(entry.submission_id) }
    }

    fn start(&self, job: &ItemJob, part: usize) -> Option<Turn> {
        self.line_up(job, part)
    }

    /// What few items come to is boxed, so that the task of every item stays small.
    async fn handle(&self, part: Part<'_, records::Items>) -> Result<(), TaskError> {
        let Part { job, index: part, is_retry, slot } = part;
        if let Some(cause) = job.context_of {
            return Box::pin(self.look_aside(&job, part, cause, slot)).await;
        }
        let turn = self.line_up(&job, part);
        let submission = submission(&job, part);
        let may_stand =
            is_retry || job.maybe_replayed || submission.entry.keyed || submission.entry.origin.is_some();
        if may_stand {
            match Box::pin(submissions::standing(&self.deps, &submission)).await? {
                Standing::Planned { plan, is_begun } => {
                    drop(turn);
                    let may_rest = job.is_resent && !is_begun && plan.has_effects();
                    let plan = if may_rest && Box::pin(self.is_superseded(&submission)).await? {
                        effects::set_aside(&self.deps.store, *plan).await?
                    } else {
                        *plan
                    };
                    return Ok(Box::pin(submissions::finish(&self.deps, &submission, &plan)).await?);
                }
                Standing::Evaluated => return Ok(()),
                Standing::HandedOver => {
                    drop(turn);
                    let again = submissions::hand_over(&self.deps, &submission, job.is_resent);
                    return Ok(Box::pin(again).await?);
                }
                Standing::Fresh => {}
            }
        }
        let no_reviews = Box::pin(submissions::no_reviews(&self.deps, &job.record)).await?;
        if job.record.source == Source::Retroact {
            return Box::pin(self.repeat(&job, part, no_reviews)).await;
        }
        let Some(mut plan) = self.plan(Arc::clone(&job), part, no_reviews, slot, turn).await? else {
            return Ok(());
        };
        if job.is_resent && plan.has_effects() && Box::pin(self.is_superseded(&submission)).await? {
            plan.supersede()?;
        }
        let outcomes = submissions::carry_out(&self.deps, &submission, plan).await?;
        self.tally.count(&submission.header.org, submission.at.append_ms, &outcomes);
        Ok(())
    }
}

/// What does not fit a configuration that stands in for a lost one may fit it when all of it is configured again.
fn not_here_yet(error: moderation::Error, header: &records::Items, here: ConfigVersion) -> moderation::Error {
    let wanted = header.config_version;
    match error {
        moderation::Error::Content { .. } if here < wanted => {
            catalog::Error::NoSuchVersion { org: header.org.clone(), wanted, head: here }.into()
        }
        other => other,
    }
}

fn submission(job: &ItemJob, part: usize) -> Submission<'_> {
    let here = Coordinates {
        append_ms: job.written_at,
        offset: job.at.offset.0,
        position: i32::try_from(part).unwrap_or(i32::MAX),
    };
    let submission = Submission::new(&job.record, &job.record.items[part], here);
    Submission { is_late: job.at.partition.topic == Topic::ItemsSlow, ..submission }
}

fn moment(job: &ItemJob, part: usize) -> Moment {
    let submission = submission(job, part);
    Moment::new(submission.at, submission.entry.submission_id)
}

fn prepare(job: &ItemJob, part: usize, config: Arc<Compiled>) -> Result<Prepared, moderation::Error> {
    let submission = submission(job, part);
    evaluate::prepare(config, job.record.source, submission.entry, submission.at.append_ms)
}

fn begin(
    job: &ItemJob,
    part: usize,
    config: Arc<Compiled>,
    no_reviews: Option<&'static str>,
) -> Result<First, moderation::Error> {
    let prepared = prepare(job, part, config)?;
    let (wanted, begun) = (prepared.wanted(), evaluate::begin(&prepared));
    if wanted.is_empty() {
        Ok(First::On(proceed(job, part, prepared, begun, no_reviews)))
    } else {
        Ok(First::Looking(Box::new((prepared, begun, wanted))))
    }
}

fn proceed(
    job: &ItemJob,
    part: usize,
    prepared: Prepared,
    begun: Begun,
    no_reviews: Option<&'static str>,
) -> Step {
    match begun {
        Begun::Finished(outcome) => Step::Decided(decide(job, part, prepared, outcome, no_reviews)),
        Begun::Waiting(scan) => Step::Waiting(Box::new((prepared, scan))),
    }
}

fn decide(
    job: &ItemJob,
    part: usize,
    prepared: Prepared,
    outcome: Outcome,
    no_reviews: Option<&'static str>,
) -> Decided {
    let submission = submission(job, part);
    let claims = submissions::claims(&submission, &prepared, &outcome, no_reviews, None);
    if claims.is_empty() {
        let none = Refused::new();
        Decided::Planned(Box::new(submissions::plan(
            &submission,
            &prepared,
            &outcome,
            no_reviews,
            &none,
            None,
        )))
    } else {
        Decided::Asking(Box::new((prepared, outcome, claims)))
    }
}
