//! The whole pipeline with ten thousand rules against the same with ten: what rules that hardly ever match cost.
//!
//! Before any timing both installations evaluate the same texts, and must come to the same matches.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tidegate_benches::{
    installation::{Installation, UP},
    items::MATCHED_WORD,
    table::{median, print, spread, thousands, verdict},
};

use crate::{
    Place,
    pipeline::{Round, Subject},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Items of a round
    #[arg(long, default_value_t = 100_000)]
    items: u64,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    #[arg(long, default_value_t = 10_000)]
    rules: usize,
}

const FEW: usize = 10;
const BAR: f64 = 1.5;

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    let mut subjects = Vec::new();
    for count in [FEW, args.rules] {
        let rules = rules(count);
        let installation = Installation::embedded_with(&place.repository, &place.binary, "", Some(&rules)).await?;
        subjects.push((Subject { installation, role: UP, next: 0 }, Vec::new()));
    }
    for (subject, _) in &mut subjects {
        subject.round(args.items / 10, args.connections).await?;
    }
    compare(&subjects[0].0.matches().await?, &subjects[1].0.matches().await?)?;
    for nth in 1..=args.rounds {
        for (count, (subject, rounds)) in [FEW, args.rules].into_iter().zip(&mut subjects) {
            let round = subject.round(args.items, args.connections).await?;
            let (items, seconds, cpu) = (round.items, round.seconds, round.cpu);
            eprintln!("round {nth}, {count} rules: {items} items in {seconds:.2} s, {cpu:.2} s of CPU");
            rounds.push(round);
        }
    }
    compare(&subjects[0].0.matches().await?, &subjects[1].0.matches().await?)?;
    let line = |(count, rounds): (usize, &Vec<Round>)| {
        let cpu: Vec<f64> = rounds.iter().map(Round::cpu_micros).collect();
        let (low, high) = spread(&cpu);
        let rate = median(rounds.iter().map(Round::rate).collect());
        vec![
            count.to_string(),
            format!("{:.1}", median(cpu)),
            format!("{low:.1} to {high:.1}"),
            thousands(rate),
        ]
    };
    println!("### Whole pipeline, embedded, 100 a request, by number of rules\n");
    let (few, many) = (&subjects[0].1, &subjects[1].1);
    print(
        &["rules", "CPU µs an item", "lowest to highest", "items/s"],
        &[line((FEW, few)), line((args.rules, many))],
    );
    let ratios = few.iter().zip(many).map(|(few, many)| many.cpu_micros() / few.cpu_micros());
    let ratio = median(ratios.collect());
    println!(
        "{} rules cost {ratio:.2} times the CPU of {FEW}: at most {BAR} is {}.\n",
        args.rules,
        verdict(ratio <= BAR)
    );
    for (subject, _) in subjects {
        subject.installation.stop_all().await?;
    }
    Ok(())
}

/// Texts that both have evaluated match the same rules in both, and some of them match.
fn compare(few: &BTreeMap<usize, Value>, many: &BTreeMap<usize, Value>) -> Result<()> {
    let (mut compared, mut matching) = (0, 0);
    for (text, matched) in few {
        let Some(other) = many.get(text) else { continue };
        ensure!(matched == other, "text {text} matches {matched} among few rules, and {other} among many");
        compared += 1;
        matching += usize::from(matched.as_array().is_some_and(|matched| !matched.is_empty()));
    }
    ensure!(compared > 50 && matching > compared / 10, "{matching} of {compared} texts match a rule");
    eprintln!("{compared} texts compared: the same matches in both, {matching} of them match a rule");
    Ok(())
}

/// Id of the one rule that matches some of the texts.
pub(crate) const MATCHING: &str = "rule-0";

/// The first of them finds a word of the texts, in the background; the others find words that no text has, in the
/// shares of rule sets in use.
pub(crate) fn rules(count: usize) -> String {
    let mut draw = Draw(0x7469_6465);
    let document = |nth: usize| {
        let when = if nth == 0 {
            json!({"text": {"in": ["text"], "words": [MATCHED_WORD]}})
        } else {
            condition(&mut draw, nth)
        };
        let rest = json!({"status": "background", "item_types": ["post"], "when": when, "policies": ["scam"],
            "actions": ["limit_reach"]})
        .to_string();
        // The kind comes first.
        format!("{{\"rule\":\"rule-{nth}\",{}", &rest[1..])
    };
    format!("[{}]", (0..count).map(document).collect::<Vec<_>>().join(",\n"))
}

fn condition(draw: &mut Draw, nth: usize) -> Value {
    let word = |draw: &mut Draw| (0..4).map(|_| draw.syllable()).collect::<String>();
    let text = |word: String| json!({"text": {"in": ["text", "title"], "any_of": [word]}});
    // By sevens, so that a small set has all kinds of rules too.
    match nth * 7 % 20 {
        0..=5 => json!({"text": {"in": ["text"], "words": [word(draw), word(draw)]}}),
        6..=8 => json!({"all": [{"field": {"path": "likes", "gt": 80 + draw.roll(19)}}, text(word(draw)),
            {"not": text("morning".to_owned())}]}),
        9..=11 => {
            let (a, b) = (word(draw), word(draw));
            json!({"text": {"in": ["text"], "regex": format!(r"(?i)\b(?:{a}|{b})s?\b")}})
        }
        12..=14 => {
            let view = ["folded", "collapsed"][nth % 2];
            json!({"text": {"in": ["text"], "any_of": [word(draw)], "view": view}})
        }
        15 | 16 => json!({"all": [{"field": {"path": "likes", "lt": 20 + draw.roll(9)}},
            {"field": {"path": "title", "eq": word(draw)}}]}),
        17 | 18 => json!({"all": [{"field": {"path": "likes", "gte": 10 + draw.roll(80)}},
            {"field": {"path": "title", "in": [word(draw), word(draw)]}}]}),
        _ => json!({"all": [text(word(draw)), {"strikes": {"gte": 3, "within": "30d"}}]}),
    }
}

/// The same rules in every run.
struct Draw(u64);

impl Draw {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }

    fn syllable(&mut self) -> String {
        let letter = |letters: &str, nth: usize| letters[nth..=nth].to_owned();
        letter("bcdfghklmnprstvw", self.roll(16)) + &letter("aeiou", self.roll(5))
    }
}
