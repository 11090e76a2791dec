//! Measures the rule engine: cost an item by number of rules and mix, counted against the plain interpreter first.
//!
//! `cargo bench -p tidegate-rules -- [M1,M2,...] [sizes] [items] [seconds]`; it prints a table, and the ratios that
//! matter. With `seconds`, it only evaluates for so long, counts nothing and checks nothing: for a profiler.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

mod fixed;
#[path = "../../crates/rules/tests/it/oracle/interpreter/mod.rs"]
mod interpreter;
mod mixes;

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

use fixed::Fixed;
use mixes::{ITEM_TYPE, Mix, Set};
use rustix::time::{ClockId, clock_gettime};
use tidegate_rules::{
    Facts, Item, Kind, Limits, Need, Outcome, Plan, RuleSource, Trigger, Vocabulary,
    syntax::{self, Rule},
};
use tidegate_schemas::{
    ids::{ItemKey, Millis, SubmissionId, TypeId},
    item_types::Values,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 60;
const ROUND: Duration = Duration::from_millis(25);

/// What all rounds may take together: where one takes long, there are fewer of them.
const MOST: Duration = Duration::from_secs(30);

const NOW: Millis = Millis(1_767_225_600_000);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let listed =
        |nth: usize| arguments.get(nth).map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>());
    let mixes: Vec<Mix> = match listed(0) {
        Some(names) if names != ["all"] => {
            Mix::ALL.into_iter().filter(|mix| names.contains(&mix.name())).collect()
        }
        _ => Mix::ALL.to_vec(),
    };
    let sizes: Vec<usize> = listed(1).map_or_else(
        || vec![10, 100, 1_000, 10_000, 100_000],
        |sizes| sizes.iter().map(|size| size.parse().unwrap()).collect(),
    );
    let items: usize = arguments.get(2).map_or(2_000, |items| items.parse().unwrap());
    let seconds: Option<u64> = arguments.get(3).map(|seconds| seconds.parse().unwrap());
    if let Some(seconds) = seconds {
        return profile(mixes[0], sizes[0], items, Duration::from_secs(seconds));
    }
    println!(
        "{:<7}{:>8}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}{:>10}{:>7}",
        "mix",
        "rules",
        "items/s",
        "ns/item",
        "checked",
        "read ns",
        "p50 ns",
        "p99 ns",
        "max ns",
        "match%",
        "matches",
        "evaluated",
        "always%",
        "build ms",
        "again ms",
        "search MB",
        "fixed ns",
        "load"
    );
    let fixed = Fixed::new();
    for mix in mixes {
        let mut first = None;
        for size in &sizes {
            let cost = measure(&fixed, mix, *size, if mix == Mix::M7 { items / 20 } else { items });
            let (least, smallest) = *first.get_or_insert((*size, cost));
            if *size > least {
                println!("{:<7}cost({size})/cost({least}) = {:.2}", "", cost / smallest);
            }
        }
    }
}

fn measure(fixed: &Fixed, mix: Mix, size: usize, items: usize) -> f64 {
    let set = Set::new(mix, size, items.max(20));
    // The plain interpreter explains whatever matches.
    let limits =
        Limits { rules: 1_000_000, regexes_in_all: 100_000, explained: usize::MAX, ..Limits::default() };
    let vocabulary = Vocabulary::from_item_types([&set.item_type]);
    let sources: Vec<_> = set.rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let compile = || {
        let began = cpu();
        (Plan::compile(&sources, &vocabulary, &limits).unwrap(), cpu() - began)
    };
    let (first, build) = compile();
    // As a service does that runs for some time: beside the live plan, in memory that an earlier one has left.
    let (live, _) = compile();
    drop(first);
    let (plan, again) = compile();
    drop(live);
    let read: Vec<Values> = set.items.iter().map(|item| set.read(item)).collect();
    let (checked, unindexed) = check(&set, &plan, &read, &limits);
    assert!(unindexed > 0 || !matches!(mix, Mix::M3(_) | Mix::M8), "no rule was seen to match unindexed");

    let (mut matching, mut matches, mut judged) = (0_usize, 0_usize, 0_usize);
    for values in &read {
        let (outcome, candidates) = evaluate(&plan, values);
        matching += usize::from(!outcome.matched.is_empty());
        matches += outcome.matched.len();
        judged += candidates;
    }
    // Short rounds: on a machine that others use, some of them run undisturbed.
    let (mut best, before, start) = (f64::MAX, fixed.measure(), cpu());
    for _ in 0..ROUNDS {
        if cpu() - start > MOST {
            break;
        }
        let (began, mut rounds) = (cpu(), 0_usize);
        while cpu() - began < ROUND {
            for values in &read {
                black_box(evaluate(&plan, values));
            }
            rounds += 1;
        }
        best = best.min((cpu() - began).as_nanos() as f64 / (rounds * read.len()) as f64);
    }
    let around = f64::midpoint(before, fixed.measure());
    let reading = reading(&set);
    let mut each: Vec<u128> = Vec::with_capacity(read.len());
    for values in &read {
        let began = Instant::now();
        black_box(evaluate(&plan, values));
        each.push(began.elapsed().as_nanos());
    }
    each.sort_unstable();
    let at = |share: usize| each[(each.len() - 1) * share / 100];
    let figures = plan.size();
    let of = read.len() as f64;
    println!(
        "{:<7}{:>8}{:>11.0}{:>9.0}{:>9}{:>9.0}{:>9}{:>9}{:>9}{:>8.1}{:>9.2}{:>9.1}{:>9.1}{:>10.1}{:>10.1}{:>10.1}{:>10.0}{:>7}",
        mix.name(),
        size,
        1e9 / best,
        best,
        checked,
        reading,
        at(50),
        at(99),
        at(100),
        100.0 * matching as f64 / of,
        matches as f64 / of,
        judged as f64 / of,
        100.0 * figures.unindexed as f64 / figures.rules as f64,
        build.as_secs_f64() * 1e3,
        again.as_secs_f64() * 1e3,
        figures.search_bytes as f64 / 1e6,
        around,
        fixed::load(),
    );
    best
}

/// What it costs to read an item's JSON into values, each checked against its type, which every process does once.
fn reading(set: &Set) -> f64 {
    let texts: Vec<String> = set.items.iter().map(ToString::to_string).collect();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS / 4 {
        let (began, mut rounds) = (cpu(), 0_usize);
        while cpu() - began < ROUND {
            texts.iter().for_each(|text| drop(black_box(set.check(text))));
            rounds += 1;
        }
        best = best.min((cpu() - began).as_nanos() as f64 / (rounds * texts.len()) as f64);
    }
    best
}

fn profile(mix: Mix, size: usize, items: usize, time: Duration) {
    let set = Set::new(mix, size, items);
    let limits = Limits { rules: 1_000_000, regexes_in_all: 100_000, ..Limits::default() };
    let sources: Vec<_> = set.rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let plan = Plan::compile(&sources, &Vocabulary::from_item_types([&set.item_type]), &limits).unwrap();
    let read: Vec<Values> = set.items.iter().map(|item| set.read(item)).collect();
    let (end, mut rounds) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        let began = cpu();
        read.iter().for_each(|values| drop(black_box(evaluate(&plan, values))));
        rounds.push((cpu() - began).as_nanos() as f64 / read.len() as f64);
    }
    rounds.sort_by(f64::total_cmp);
    let (best, median) = (rounds[0], rounds[rounds.len() / 2]);
    println!(
        "{} {size}: {best:.0} ns an item at best, {median:.0} in the middle, not checked; fixed work {:.0} ns",
        mix.name(),
        Fixed::new().measure()
    );
}

fn evaluate(plan: &Plan, values: &Values) -> (Outcome, usize) {
    let (type_id, user) = keys();
    let item =
        Item { type_id, values, user: Some(user), on: Trigger::Item, now: NOW, submission: submission() };
    let scan = plan.scan(&item);
    let mut facts = Facts::offline(scan.pending_needs());
    for need in scan.pending_needs().iter().filter(|need| matches!(need, Need::Strikes { .. })) {
        facts.set_strikes(need.clone(), 2);
    }
    let judged = scan.evaluated_rules();
    (plan.finish(scan, &facts), judged)
}

fn keys() -> (&'static TypeId, &'static ItemKey) {
    static KEYS: std::sync::OnceLock<(TypeId, ItemKey)> = std::sync::OnceLock::new();
    let (type_id, user) = KEYS.get_or_init(|| (TypeId::new(ITEM_TYPE), ItemKey::new("user", "u1")));
    (type_id, user)
}

fn submission() -> SubmissionId {
    static ID: std::sync::OnceLock<SubmissionId> = std::sync::OnceLock::new();
    *ID.get_or_init(SubmissionId::random)
}

/// Outcomes and explanations are what plain reading comes to, of as many of the timed items as it gets through, and of
/// one that many rules that are not indexed match. How many items that were, and how many rules match the last.
fn check(set: &Set, plan: &Plan, read: &[Values], limits: &Limits) -> (usize, usize) {
    let rules: Vec<Rule> =
        set.rules.iter().map(|document| syntax::parse(document, limits).unwrap()).collect();
    let kinds: BTreeMap<String, Kind> = set
        .item_type
        .fields()
        .iter()
        .map(|field| (field.name.to_string(), tidegate_rules::Shape::from(field).kind))
        .collect();
    let standings = BTreeMap::from([(Some("30d".to_owned()), Some(2))]);
    let around = interpreter::around::Around { standings, ..Default::default() };
    let (type_id, user) = keys();
    let open = set.read(&set.open);
    let (mut checked, mut matches, began) = (0, 0, cpu());
    for (nth, values) in [&open].into_iter().chain(read).enumerate() {
        if cpu() - began > MOST {
            break;
        }
        let item =
            Item { type_id, values, user: Some(user), on: Trigger::Item, now: NOW, submission: submission() };
        let oracle = interpreter::Interpreter {
            rules: &rules,
            limits,
            kinds: &kinds,
            item: &item,
            around: &around,
            windows: &[],
            banks: &[],
        };
        let (expected, _) = oracle.run(&mut interpreter::Tally::default());
        assert!(evaluate(plan, values).0 == expected, "the plan and the plain interpreter differ");
        match nth {
            0 => matches = expected.matched.len(),
            _ => checked += 1,
        }
    }
    (checked, matches)
}

/// Time on a processor: what else runs on the machine counts less than with a clock.
fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.try_into().unwrap(), spent.tv_nsec.try_into().unwrap())
}
