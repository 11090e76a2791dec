//! Evaluates conditions on facts beyond the item, and counts windows. Answers are drawn from a seed and the question, so
//! that equal questions have one answer.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
};

use ConditionResult::{Errored as Failing, Failed, Inapplicable, Passed, Skipped};
use serde_json::{Map, Value as Json};
use tidegate_rules::{
    Amount, BankMatch, ConditionResult, CountExplained, Explained, Measure, Media, MediaExplained, MediaHit,
    MediaState, ModelTextExplained, Need, ScoreExplained, Scores, StrikesExplained, Trigger, Value,
    WindowEntry, WindowKey,
    leaves::{
        LeafSpec, count::Count, media::MediaTest, model_text::ModelText, op::Op, score::Score,
        strikes::Strikes,
    },
    syntax::{Condition, Window},
};
use tidegate_schemas::ids::{ItemKey, Kind, WindowId, derive};
use uuid::Uuid;

use super::{Interpreter, Tally, logic::walk, short};

/// Strike points of a user over each span. `None` if the look-up fails.
pub(crate) type Standings = BTreeMap<Option<String>, Option<i64>>;

/// Facts that an evaluation may need.
#[derive(Default)]
pub(crate) struct Around {
    pub(crate) standings: Standings,
    pub(crate) seed: u64,
    /// Texts by the model that returns them.
    pub(crate) texts: BTreeMap<String, Vec<Arc<str>>>,
}

/// Result of a look-up.
pub(crate) enum Lookup<T> {
    Found(T),
    Unknown,
    Unavailable,
}

impl Around {
    fn draw(&self, question: &impl Hash, sides: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, question).hash(&mut hasher);
        hasher.finish() % sides
    }

    pub(crate) fn draw_count(&self, window: &WindowId, key: &WindowKey) -> Option<Amount> {
        let amounts = [None, Some(0), Some(0), Some(1), Some(2), Some(3), Some(5), Some(8)];
        let index = self.draw(&(window, key), 8);
        amounts[usize::try_from(index).unwrap()].map(Amount::from_whole)
    }

    pub(crate) fn media(&self, url: &str) -> Lookup<Media> {
        let draw = |what: &str, sides: u64| self.draw(&(url, what), sides);
        let state = match draw("state", 16) {
            0 => return Lookup::Unknown,
            1 => return Lookup::Unavailable,
            2 => MediaState::LowQuality,
            3 => MediaState::Undecodable,
            4 => MediaState::TooLarge,
            5 => MediaState::BlockedAddress,
            6 => MediaState::FetchFailed,
            _ => MediaState::Ok,
        };
        let bank_match = |nth: u64| BankMatch {
            bank: ["faces", "flags"][usize::try_from(draw(&format!("bank {nth}"), 2)).unwrap()].into(),
            entry: format!("e{nth}"),
            kind: ["pdq", "md5"][usize::try_from(draw(&format!("kind {nth}"), 2)).unwrap()].to_owned(),
            distance: u32::try_from(draw(&format!("distance {nth}"), 32)).unwrap(),
            labels: ["cruel", "bare"]
                .iter()
                .take(usize::try_from(draw("labels", 3)).unwrap())
                .map(|l| (*l).to_owned())
                .collect(),
        };
        Lookup::Found(Media { state, matches: (0..draw("matches", 4)).map(bank_match).collect() })
    }

    pub(crate) fn scores(&self, model: &str) -> Lookup<Scores> {
        let draw_score = |what: &str| match self.draw(&(model, what), 12) {
            0 => None,
            1 => Some(f64::NAN),
            n => f64::from(u32::try_from(n).unwrap()).mul_add(0.1, -0.2).into(),
        };
        match self.draw(&model, 8) {
            0 => Lookup::Unavailable,
            1 => Lookup::Unknown,
            _ => Lookup::Found(Scores {
                overall: draw_score("whole"),
                labels: draw_score("rude").map(|score| ("rude".to_owned(), score)).into_iter().collect(),
                texts: self.texts.get(model).cloned().unwrap_or_default(),
            }),
        }
    }
}

/// Condition on facts: its needs, its possible outcomes, its outcome, and its explanation.
pub(crate) struct FactCondition {
    pub(crate) needs: Vec<Need>,
    pub(crate) possible: Vec<ConditionResult>,
    pub(crate) verdict: ConditionResult,
    pub(crate) explained: Explained,
    pub(crate) reason: Option<String>,
}

impl Interpreter<'_> {
    /// `None` if the item alone decides the condition.
    pub(super) fn ask(&self, condition: &Condition) -> Option<Result<FactCondition, ConditionResult>> {
        match condition {
            Condition::Leaf(LeafSpec::Strikes(strikes)) => Some(self.strikes(strikes)),
            Condition::Leaf(LeafSpec::Count(count)) => Some(self.count(count)),
            Condition::Leaf(LeafSpec::Media(media)) => Some(self.media(media)),
            Condition::Leaf(LeafSpec::Score(score)) => Some(self.score(score)),
            Condition::Leaf(LeafSpec::ModelText(text)) => Some(self.model_text(text)),
            _ => None,
        }
    }

    /// Explanation of a condition without a look-up.
    pub(super) fn blank(&self, condition: &Condition, outcome: ConditionResult) -> Explained {
        match condition {
            Condition::Leaf(LeafSpec::Strikes(strikes)) => Explained::Strikes(StrikesExplained {
                outcome,
                at_least: strikes.at_least,
                within: strikes.within.map(|within| within.to_string()),
                points: None,
                reason: None,
            }),
            Condition::Leaf(LeafSpec::Count(count)) => Explained::Count(CountExplained {
                outcome,
                window: count.window.clone(),
                at_least: self.sufficient_amount(count).1,
                key: None,
                counted: None,
                reason: None,
            }),
            Condition::Leaf(LeafSpec::Media(media)) => Explained::Media(MediaExplained {
                outcome,
                fields: media.fields.clone(),
                hits: Vec::new(),
                reason: None,
            }),
            Condition::Leaf(LeafSpec::Score(score)) => Explained::Score(ScoreExplained {
                outcome,
                model: score.model.clone(),
                label: score.label.clone(),
                compared: score
                    .tests
                    .iter()
                    .map(|(op, end)| {
                        let name = serde_json::to_value(op).unwrap();
                        let end = match end {
                            tidegate_rules::Number::Whole(whole) => {
                                Json::from(i64::try_from(*whole).unwrap())
                            }
                            tidegate_rules::Number::Fraction(fraction) => Json::from(*fraction),
                        };
                        (name.as_str().unwrap().to_owned(), end)
                    })
                    .collect::<Map<_, _>>(),
                score: None,
                reason: None,
            }),
            Condition::Leaf(LeafSpec::ModelText(text)) => Explained::ModelText(ModelTextExplained {
                outcome,
                model: text.model.clone(),
                view: text.text.view,
                hits: Vec::new(),
                more: false,
                reason: None,
            }),
            _ => unreachable!("only conditions on facts are blank"),
        }
    }

    fn strikes(&self, strikes: &Strikes) -> Result<FactCondition, ConditionResult> {
        let user = self.item.user.ok_or(Inapplicable)?;
        let points = self.around.standings[&strikes.within.map(|within| within.to_string())];
        let verdict =
            points.map_or(Failing, |points| if points >= strikes.at_least { Passed } else { Failed });
        let mut explained = self.blank(&Condition::Leaf(LeafSpec::Strikes(*strikes)), verdict);
        if let Explained::Strikes(explained) = &mut explained {
            explained.points = points;
            explained.reason = points.is_none().then(|| "down".to_owned());
        }
        Ok(FactCondition {
            needs: vec![Need::Strikes { user: user.clone(), within: strikes.within }],
            possible: vec![Failed, Failing, Passed],
            verdict,
            explained,
            reason: points.is_none().then(|| "strikes: down".to_owned()),
        })
    }

    /// Sufficient amount, and its form in JSON.
    fn sufficient_amount(&self, count: &Count) -> (Amount, Json) {
        let window = self.windows.iter().find(|window| window.key == count.window).unwrap();
        let millionths = count.at_least.0;
        let amount = if window.measure == Measure::Sum {
            millionths
        } else {
            (millionths + 999_999) / 1_000_000 * 1_000_000
        };
        let amount_json = if amount % 1_000_000 == 0 {
            Json::from(amount / 1_000_000)
        } else {
            Json::from(format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000).parse::<f64>().unwrap())
        };
        (Amount(amount), amount_json)
    }

    /// Keys under which a window counts the item, up to the limit.
    fn keys(&self, by: Option<&String>) -> (Vec<String>, bool) {
        let of = |key: &ItemKey| format!("{}/{}", key.type_id, key.id);
        let Some(path) = by else { return (self.item.user.map(of).into_iter().collect(), false) };
        let mut keys: Vec<String> = Vec::new();
        for (_, value) in self.values(path).unwrap_or_default() {
            let key = plain(&value);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let is_cut = keys.len() > self.limits.window_values;
        keys.truncate(self.limits.window_values);
        (keys, is_cut)
    }

    fn count(&self, count: &Count) -> Result<FactCondition, ConditionResult> {
        let window = self.windows.iter().find(|window| window.key == count.window).unwrap();
        let (keys, _) = self.keys(window.by.as_ref());
        if keys.is_empty() {
            return Err(Inapplicable);
        }
        let (bound, _) = self.sufficient_amount(count);
        let keys: Vec<WindowKey> =
            keys.iter().map(|key| serde_json::from_value(Json::from(key.clone())).unwrap()).collect();
        let counts: Vec<_> =
            keys.iter().map(|key| (key, self.around.draw_count(&count.window, key))).collect();
        let first = counts.iter().find(|(_, counted)| counted.is_some_and(|counted| counted >= bound));
        let down = counts.iter().find(|(_, counted)| counted.is_none());
        let largest = counts.iter().rev().max_by_key(|(_, counted)| *counted);
        let (verdict, (key, counted)) = match (first, down, largest) {
            (Some(first), ..) => (Passed, *first),
            (_, Some(down), _) => (Failing, *down),
            (.., largest) => (Failed, *largest.unwrap()),
        };
        let mut explained = self.blank(&Condition::Leaf(LeafSpec::Count(count.clone())), verdict);
        if let Explained::Count(explained) = &mut explained {
            explained.key = Some(short(key.as_str(), self.limits));
            explained.counted = counted.map(|counted| Json::from(counted.0 / 1_000_000));
            explained.reason = (verdict == Failing).then(|| "down".to_owned());
        }
        let need = |key| Need::Count { window: count.window.clone(), key, at_least: bound };
        Ok(FactCondition {
            needs: keys.iter().cloned().map(need).collect(),
            possible: vec![Failed, Failing, Passed],
            verdict,
            explained,
            reason: (verdict == Failing).then(|| "count: down".to_owned()),
        })
    }

    fn media(&self, test: &MediaTest) -> Result<FactCondition, ConditionResult> {
        let mut urls = Vec::new();
        for field in &test.fields {
            for (_, value) in self.values(field).unwrap_or_default() {
                if let Value::Text(url) = value {
                    urls.push(url.to_owned());
                }
            }
        }
        if urls.is_empty() {
            return Err(Failed);
        }
        let (mut hits, mut reasons, mut failed, mut unknown) = (Vec::new(), Vec::new(), false, false);
        for url in &urls {
            let media = match self.around.media(url) {
                Lookup::Unavailable => {
                    reasons.push("down");
                    continue;
                }
                Lookup::Unknown => {
                    unknown = true;
                    continue;
                }
                Lookup::Found(media) => media,
            };
            let hit = |found| MediaHit { url: short(url, self.limits), state: media.state, found };
            if !test.states.is_empty() {
                failed = true;
                hits.extend(test.states.contains(&media.state).then(|| hit(None)));
                continue;
            }
            let like: Vec<_> = media
                .matches
                .iter()
                .filter(|found| test.banks.is_empty() || test.banks.contains(&found.bank))
                .filter(|found| test.kinds.is_empty() || test.kinds.contains(&found.kind))
                .filter(|found| {
                    test.labels.is_empty() || test.labels.iter().any(|label| found.labels.contains(label))
                })
                .filter(|found| test.max_distance.is_none_or(|most| found.distance <= most))
                .collect();
            let exact = test.kinds == ["md5"];
            match media.state {
                _ if !like.is_empty() => {}
                MediaState::TooLarge => reasons.push("too_large"),
                MediaState::BlockedAddress => reasons.push("blocked_address"),
                MediaState::FetchFailed => reasons.push("fetch_failed"),
                MediaState::Undecodable if !exact => reasons.push("undecodable"),
                _ => failed = true,
            }
            hits.extend(like.into_iter().map(|found| hit(Some(found.clone()))));
        }
        let verdict = match (hits.is_empty(), reasons.first()) {
            (false, _) => Passed,
            (true, Some(_)) => Failing,
            (true, None) if unknown && !failed => Inapplicable,
            (true, None) => Failed,
        };
        let reason = (verdict == Failing).then(|| reasons[0].to_owned());
        hits.truncate(self.limits.hits);
        let mut explained = self.blank(&Condition::Leaf(LeafSpec::Media(test.clone())), verdict);
        if let Explained::Media(explained) = &mut explained {
            explained.hits = hits;
            explained.reason.clone_from(&reason);
        }
        Ok(FactCondition {
            needs: urls.into_iter().map(|url| Need::Media { url }).collect(),
            possible: vec![Failed, Failing, Inapplicable, Passed],
            verdict,
            explained,
            reason: reason.map(|reason| format!("media: {reason}")),
        })
    }

    fn score(&self, score: &Score) -> Result<FactCondition, ConditionResult> {
        let answer = match self.around.scores(&score.model) {
            Lookup::Unavailable => Err("down"),
            Lookup::Unknown => Ok(None),
            Lookup::Found(scores) => match &score.label {
                None => Ok(scores.overall),
                Some(label) => Ok(scores.labels.get(label).copied()),
            },
        };
        let answer = match answer {
            Ok(Some(number)) if number.is_nan() => Err("not_a_number"),
            other => other,
        };
        let meets = |number: f64| {
            score.tests.iter().all(|(op, end)| {
                let end = match end {
                    tidegate_rules::Number::Whole(whole) => f64::from(i32::try_from(*whole).unwrap()),
                    tidegate_rules::Number::Fraction(fraction) => *fraction,
                };
                match op {
                    Op::Lt => number < end,
                    Op::Lte => number <= end,
                    Op::Gt => number > end,
                    _ => number >= end,
                }
            })
        };
        let verdict = match answer {
            Err(_) => Failing,
            Ok(None) => Inapplicable,
            Ok(Some(number)) => {
                if meets(number) {
                    Passed
                } else {
                    Failed
                }
            }
        };
        let mut explained = self.blank(&Condition::Leaf(LeafSpec::Score(score.clone())), verdict);
        if let Explained::Score(explained) = &mut explained {
            explained.score = answer.ok().flatten();
            explained.reason = answer.err().map(str::to_owned);
        }
        Ok(FactCondition {
            needs: vec![Need::Score { model: score.model.clone(), submission: self.item.submission }],
            possible: vec![Failed, Failing, Inapplicable, Passed],
            verdict,
            explained,
            reason: answer.err().map(|reason| format!("score: {reason}")),
        })
    }

    fn model_text(&self, asked: &ModelText) -> Result<FactCondition, ConditionResult> {
        let (verdict, reason) = match self.around.scores(&asked.model) {
            Lookup::Unavailable => (Failing, Some("down")),
            Lookup::Found(scores) if !scores.texts.is_empty() => (self.text(&asked.text), None),
            Lookup::Found(_) | Lookup::Unknown => (Inapplicable, None),
        };
        let mut explained = self.blank(&Condition::Leaf(LeafSpec::ModelText(asked.clone())), verdict);
        if let Explained::ModelText(explained) = &mut explained {
            if matches!(verdict, Passed | Failed)
                && let Explained::Text(searched) = self.text_explained(&asked.text, verdict)
            {
                (explained.hits, explained.more) = (searched.hits, searched.more);
            }
            explained.reason = reason.map(str::to_owned);
        }
        Ok(FactCondition {
            needs: vec![Need::Score { model: asked.model.clone(), submission: self.item.submission }],
            possible: vec![Failed, Failing, Inapplicable, Passed],
            verdict,
            explained,
            reason: reason.map(|reason| format!("model_text: {reason}")),
        })
    }

    /// Name of a model's text that is longer than the searched part.
    pub(super) fn cut_text(&self, condition: &Condition) -> Option<String> {
        let Condition::Leaf(LeafSpec::ModelText(asked)) = condition else { return None };
        let Lookup::Found(scores) = self.around.scores(&asked.model) else { return None };
        let bytes: usize = scores.texts.iter().map(|text| text.len()).sum();
        (bytes > self.limits.text_bytes).then(|| format!("signal:{}", asked.model))
    }

    /// Entries of the item in windows, and the windows that lack some of them.
    pub(crate) fn entries(&self) -> (Vec<WindowEntry>, Vec<WindowId>) {
        let (mut entries, mut cut) = (Vec::new(), Vec::new());
        for window in self.windows {
            let concerns = window.item_types.is_empty() || window.item_types.contains(self.item.type_id);
            let (keys, keys_cut) = self.keys(window.by.as_ref());
            if !concerns || self.item.on != Trigger::Item || keys.is_empty() || !self.counts(window) {
                continue;
            }
            let values = window.measured.as_ref().map(|path| self.values(path).unwrap_or_default());
            let mut members: Vec<i64> = Vec::new();
            let mut amount = 1_000_000;
            if window.measure == Measure::Distinct {
                amount = 0;
                for (_, value) in values.iter().flatten() {
                    let id: Uuid = derive(Kind::WindowMember, &[b"value", plain(value).as_bytes()]);
                    let member = i64::from_be_bytes(id.as_bytes()[..8].try_into().unwrap());
                    if !members.contains(&member) {
                        members.push(member);
                    }
                }
            }
            if window.measure == Measure::Sum {
                amount = 0;
                for (_, value) in values.iter().flatten() {
                    amount = match value {
                        Value::Number(tidegate_rules::Number::Whole(whole)) => i64::try_from(
                            (i128::from(amount) + (*whole).clamp(0, i128::from(i64::MAX)) * 1_000_000)
                                .min(i128::from(i64::MAX)),
                        )
                        .unwrap(),
                        Value::Number(tidegate_rules::Number::Fraction(fraction)) => {
                            let millionths = format!("{:.0}", fraction.max(0.0) * 1e6);
                            amount.saturating_add(millionths.parse().unwrap_or(i64::MAX))
                        }
                        _ => unreachable!("only numbers are summed up"),
                    };
                }
            }
            let members_cut = members.len() > self.limits.window_values;
            members.truncate(self.limits.window_values);
            if window.measure == Measure::Distinct && members.is_empty()
                || window.measure == Measure::Sum && amount == 0
            {
                continue;
            }
            for key in keys {
                entries.push(WindowEntry {
                    window: window.key.clone(),
                    key: serde_json::from_value(Json::from(key)).unwrap(),
                    bucket: self.item.now.0 / window.bucket,
                    at: self.item.now,
                    amount: Amount(amount),
                    members: members.clone(),
                    retention_millis: window.length_millis + window.bucket,
                });
            }
            if keys_cut || members_cut {
                cut.push(window.key.clone());
            }
        }
        (entries, cut)
    }

    fn counts(&self, window: &Window) -> bool {
        window.condition.as_ref().is_none_or(|condition| {
            let mut leaf_list = Vec::new();
            self.collect_leaves(condition, None, &mut leaf_list, &mut Tally::default());
            walk(self.rules, condition, &mut 0, &mut |nth| vec![leaf_list[nth].alone]) == [Passed]
        })
    }
}

/// A value in the form of a key.
fn plain(value: &Value<'_>) -> String {
    let text = match value {
        Value::Text(text) => (*text).to_owned(),
        Value::Number(tidegate_rules::Number::Whole(whole)) => whole.to_string(),
        // Equal numbers have one text, as far as they are whole.
        Value::Number(tidegate_rules::Number::Fraction(zero)) if *zero == 0.0 => "0".to_owned(),
        Value::Number(tidegate_rules::Number::Fraction(whole))
            if whole % 1.0 == 0.0 && whole.abs() <= 2_f64.powi(127) && *whole < 2_f64.powi(127) =>
        {
            format!("{whole:.0}")
        }
        Value::Number(tidegate_rules::Number::Fraction(fraction)) => Json::from(*fraction).to_string(),
        Value::Boolean(boolean) => boolean.to_string(),
        Value::Datetime(at) => at.iso(),
        Value::Related { type_id, id } => format!("{type_id}/{id}"),
        Value::List(_) | Value::Map(_) => unreachable!("containers hold scalars"),
    };
    if text.len() <= 128 {
        return text;
    }
    let mut beginning = String::new();
    for character in text.chars() {
        if beginning.len() + character.len_utf8() > 64 {
            break;
        }
        beginning.push(character);
    }
    let digest: Uuid = derive(Kind::WindowMember, &[b"key", text.as_bytes()]);
    format!("{beginning}~{digest}")
}

/// Outcome of a condition on facts that no rule may need.
pub(crate) fn skipped_or(alone: ConditionResult, looked: bool, waits: bool) -> ConditionResult {
    if waits || !looked { Skipped } else { alone }
}
