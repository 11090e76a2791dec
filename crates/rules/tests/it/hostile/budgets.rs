//! Sets of rules that are valid and too expensive: they are refused, or stay within the budget.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Facts, Interrupt, Item, Kind, Limits, Outcome, Plan, RuleSource, Shape, Trigger, Vocabulary, Warning,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

use super::Data;

/// Outcomes of a set of conditions on texts, and the tags of its warnings.
fn outcomes(conditions: &[Json], texts: &[String]) -> (Vec<Outcome>, Vec<&'static str>) {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let documents: Vec<Json> =
        (0..).zip(conditions).map(|(nth, when)| json!({"rule": format!("r{nth}"), "when": when})).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    // A build without optimisation needs more time for the same steps.
    let limits = Limits { cpu_ms_per_item: 600_000, ..Limits::default() };
    let plan = Plan::compile(&sources, &vocabulary, &limits).unwrap();
    let warnings = plan.warnings();
    let type_id = TypeId::new("post");
    let outcome = |text: &String| {
        let item = Item {
            type_id: &type_id,
            values: &Data(text.clone()),
            user: None,
            on: Trigger::Item,
            now: Millis(0),
            submission: SubmissionId::random(),
        };
        plan.finish(plan.scan(&item), &Facts::new())
    };
    (texts.iter().map(outcome).collect(), warnings.iter().map(Warning::tag).collect())
}

fn count_matches(outcome: &Outcome) -> usize {
    outcome.matched.len() + outcome.matched_more
}

#[test]
fn overlapping_short_words_stay_within_the_steps() {
    // All words of two to seventeen letters over two letters, up to a limit: many of them start at every place of a text.
    let words: Vec<String> =
        (0..100_000_u32).map(|nth| format!("{:b}", nth + 2).replace('0', "a").replace('1', "b")).collect();
    let rules: Vec<Json> =
        words.chunks(10_000).map(|words| json!({"text": {"in": ["text"], "any_of": words}})).collect();
    let texts = ["ab".repeat(150), "b".repeat(64 << 10), "ba".repeat(32 << 10), "xyz".to_owned()];
    let (outcomes, warnings) = outcomes(&rules, &texts);
    // Only the first rule has words of under three letters.
    assert_eq!(warnings.iter().filter(|tag| **tag == "short_word").count(), 1, "{warnings:?}");
    for (text, outcome) in texts.iter().zip(&outcomes) {
        let parts: HashSet<&str> = (2..=17)
            .flat_map(|length| (length..=text.len()).map(move |end| &text[end - length..end]))
            .collect();
        let expected_rules =
            words.chunks(10_000).filter(|words| words.iter().any(|it| parts.contains(it.as_str())));
        assert_eq!((count_matches(outcome), outcome.errored.len()), (expected_rules.count(), 0));
    }
}

#[test]
fn patterns_without_literals_run_in_sets_and_are_reported() {
    let shapes = [
        "[0-9]{N,}-[0-9]{M}",
        "[a-z]{N}[0-9]{M}",
        r"\b[a-z]{N}[A-Z]{M}\b",
        "[A-Z]{1,N}[0-9]{M}",
        "[^a-z]{N}[a-z]{M}",
        r"[a-f]+\d{N}[x-z]{M}",
    ];
    let pattern = |nth: usize| {
        let (n, m) = (1 + nth / 6 % 13, 1 + nth / 78);
        shapes[nth % 6].replace('N', &n.to_string()).replace('M', &m.to_string())
    };
    let rules: Vec<Json> =
        (0..1_000).map(pattern).map(|pattern| json!({"text": {"in": ["text"], "regex": pattern}})).collect();
    let texts = ["call 555-1234 AB12 now ".repeat(13), "a1".repeat(2 << 10), "größer 日本 99-1 ".repeat(20)];
    let (outcomes, warnings) = outcomes(&rules, &texts);
    for (text, outcome) in texts.iter().zip(&outcomes) {
        let regexes =
            rules.iter().map(|rule| regex::Regex::new(rule["text"]["regex"].as_str().unwrap()).unwrap());
        assert_eq!(
            (count_matches(outcome), outcome.errored.len()),
            (regexes.filter(|it| it.is_match(text)).count(), 0)
        );
    }
    // Some of the shapes are as good as a few literals, and the largest are too heavy to run with others.
    let is_reported = |tag: &&&str| matches!(**tag, "pattern_everywhere" | "unannounced");
    assert!(warnings.iter().filter(is_reported).count() > 50, "{warnings:?}");
}

#[test]
fn catastrophic_patterns_are_linear_or_run_out_of_steps() {
    let patterns = [
        "(a*)*b",
        "(a+a+)+y",
        "(?:a?){100}a{100}",
        "(?:a|a)*c",
        "(?:.*a){12}z",
        "(?:[a-z]+)+[0-9]{3}",
        "(x+x+)+y",
        "(?:[a-z]{1,30} ?){10}!",
        "(?:(?:a{1,20}){1,20}){1,5}b",
    ];
    let rules = patterns.map(|pattern| json!({"text": {"in": ["text"], "regex": pattern}}));
    let texts = ["a".repeat(64 << 10), "x".repeat(64 << 10), "ab ".repeat(20 << 10), "aaaa bbb".to_owned()];
    let (outcomes, warnings) = outcomes(&rules, &texts);
    let count_warnings = |tags: &[&str]| warnings.iter().filter(|tag| tags.contains(*tag)).count();
    assert_eq!(
        (count_warnings(&["pattern_everywhere", "unannounced"]), count_warnings(&["regex_costly"])),
        (9, 1)
    );
    for (text, outcome) in texts.iter().zip(&outcomes) {
        // Only the costly pattern may run out of steps.
        let out_of_steps =
            |nth: usize| outcome.errored.iter().any(|it| it.rule.as_str() == format!("r{nth}"));
        assert!(
            (0..8).all(|nth| !out_of_steps(nth)) && outcome.errored.iter().all(|it| it.reason == "deadline")
        );
        let matches = |nth: usize| regex::Regex::new(patterns[nth]).unwrap().is_match(text);
        let expected_matches = (0..patterns.len()).filter(|nth| !out_of_steps(*nth) && matches(*nth)).count();
        assert_eq!(count_matches(outcome), expected_matches);
    }
    assert!(outcomes[3].errored.is_empty(), "the costly pattern runs on a short text");
}

#[test]
fn wide_pattern_is_charged_before_it_runs() {
    let mut seed = 7_u64;
    let letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghi "[usize::try_from(seed >> 33).unwrap_or_default() % 10])
    };
    let long: String = (0..65_000).map(letter).collect();
    let heavy = |range: std::ops::Range<usize>| range.map(|n| format!("i[a-z ]{{0,{n}}}[0-9]q"));
    let ordinary = [
        r"\b\d{3}[- .]?\d{3}[- .]?\d{4}\b",
        "[a-f ]{3,20}[0-9]{2}",
        "(?i)lottery|viagra|(?:free|crypto) (?:money|giveaway)",
    ];
    let of = |pattern: String| json!({"text": {"in": ["text"], "regex": pattern}});
    let rules: Vec<Json> =
        heavy(1_900..1_940).chain(ordinary.map(str::to_owned)).chain(heavy(60..70)).map(of).collect();
    let short = "i am 5q".to_owned();
    let (there, _) = outcomes(&rules, &[long.clone(), short.clone()]);
    let (back, warnings) = outcomes(&rules, &[short, long]);
    assert_eq!((&there[0], &there[1]), (&back[1], &back[0]));
    let errored: Vec<_> =
        there[0].errored.iter().map(|it| (it.rule.to_string(), it.reason.as_str())).collect();
    let expected_failures: Vec<_> = (0..40).map(|nth| (format!("r{nth}"), "deadline")).collect();
    assert_eq!(errored, expected_failures);
    // On a text of the usual length the heavy patterns run too.
    assert_eq!((count_matches(&there[1]), there[1].errored.len()), (50, 0));
    assert_eq!(warnings.iter().filter(|tag| **tag == "regex_costly").count(), 40);
}

#[test]
fn heavy_patterns_run_out_of_steps_at_the_length_in_lint() {
    let heavy: Vec<String> = (0..300).map(|n| format!("[a-z ]{{{}}}K[0-9]{{500}}", 600 + n)).collect();
    let rules = [json!({"text": {"in": ["text"], "regex": heavy}})];
    let (outcomes, warnings) = outcomes(&rules, &["a".repeat(80), "a".repeat(84)]);
    assert_eq!(outcomes.iter().map(|outcome| outcome.errored.len()).collect::<Vec<_>>(), [0, 1]);
    // One warning for each pattern, and one for all of them together.
    assert_eq!(warnings.iter().filter(|tag| **tag == "regex_costly").count(), 301);
}

#[test]
fn errors_and_warning_kinds_do_not_crowd_each_other_out() {
    let mut vocabulary = Vocabulary::new();
    vocabulary
        .add(TypeId::new("post"), [("text", Shape::one(Kind::Text)), ("likes", Shape::one(Kind::Number))]);
    let plan = |documents: &[Json]| {
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        Plan::compile(&sources, &vocabulary, &Limits::default())
    };
    let rule =
        |nth: usize, when: Json| json!({"rule": format!("r{nth}"), "item_types": ["post"], "when": when});
    let unknown: Vec<Json> =
        (0..250).map(|nth| rule(nth, json!({"text": {"in": ["txet"], "any_of": ["x"]}}))).collect();
    assert_eq!(plan(&unknown).unwrap_err().len(), 250);
    let unknown_kinds: Vec<Json> = (0..10_100).map(|nth| rule(nth, json!({"nothing": nth}))).collect();
    let errors = plan(&unknown_kinds).unwrap_err();
    assert!(errors.len() == 10_001 && errors[10_000].detail.contains("may be more"), "{}", errors.len());

    let mut documents: Vec<Json> = (0..110)
        .map(|nth| rule(nth, json!({"text": {"in": ["text"], "any_of": ["zq", format!("word{nth}")]}})))
        .collect();
    documents.push(rule(
        110,
        json!({"all": [{"field": {"path": "likes", "eq": 1}}, {"field": {"path": "likes", "eq": 2}}]}),
    ));
    let warnings = plan(&documents).unwrap().warnings();
    let of = |tag: &str| {
        warnings.iter().filter(|it| it.tag() == tag).map(|it| it.rule.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of("short_word").len(), of("unsatisfiable")), (110, vec!["r110"]));
}

#[test]
fn explanation_states_that_hits_are_omitted() {
    let words: Vec<String> = (0..20).map(|nth| format!("word{nth:02}")).collect();
    let rules: Vec<Json> =
        [16, 17].map(|count| json!({"text": {"in": ["text"], "any_of": words[..count]}})).to_vec();
    let (outcomes, _) = outcomes(&rules, &[words.join(" ")]);
    let trees: Vec<_> = outcomes[0].matched.iter().map(|it| json!(it.tree)).collect();
    assert_eq!(
        trees.iter().map(|tree| tree["text"]["hits"].as_array().unwrap().len()).collect::<Vec<_>>(),
        [16, 16]
    );
    assert_eq!(
        trees.iter().map(|tree| tree["text"]["more"].as_bool()).collect::<Vec<_>>(),
        [None, Some(true)]
    );
}

#[test]
fn rule_over_budget_has_same_outcome_alone_and_among_others() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let pattern = "nowhere[a-z ]{0,1900}[0-9]q";
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "regex": pattern}}});
    let sources = [RuleSource { document: &document, version: "1" }];
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let type_id = TypeId::new("post");
    for (text, errored, outcome) in [("abc ", 0, "failed"), ("nowhere ", 1, "errored")] {
        let data = Data(text.repeat(8_000));
        let item = Item {
            type_id: &type_id,
            values: &data,
            user: None,
            on: Trigger::Item,
            now: Millis(0),
            submission: SubmissionId::random(),
        };
        let run = plan.finish(plan.scan(&item), &Facts::new());
        let pending = plan.begin_explanation(&item, &"r".into()).unwrap();
        let tree = json!(plan.finish_explanation(pending, &Facts::new()));
        assert_eq!((run.errored.len(), tree["text"]["outcome"].as_str()), (errored, Some(outcome)), "{tree}");
    }
}

#[test]
fn rules_that_take_too_much_memory_are_refused() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let words: Vec<String> = (0..5_000).map(|nth| format!("word number {nth}")).collect();
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "any_of": words}}});
    let limits = Limits { memory_bytes: 100_000, ..Limits::default() };
    let errors = Plan::compile(&[RuleSource { document: &document, version: "1" }], &vocabulary, &limits);
    let errors = errors.map(|_| ()).unwrap_err();
    assert!(errors[0].tag() == "limit" && errors[0].detail.contains("memory"), "{errors:?}");
}

#[test]
fn matches_beyond_the_limit_are_counted_and_live_ones_listed() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let document = |nth: usize| {
        let status = if nth.is_multiple_of(2) { "draft" } else { "live" };
        json!({"rule": format!("r{nth}"), "status": status, "when": {"text": {"in": ["text"], "any_of": ["hit"]}}})
    };
    let documents: Vec<Json> = (0..20).map(document).collect();
    let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
    let limits = Limits { matched: 4, ..Limits::default() };
    let plan = Plan::compile(&sources, &vocabulary, &limits).unwrap();
    let (type_id, values) = (TypeId::new("post"), Data("hit".to_owned()));
    let submission = SubmissionId::random();
    let item = Item {
        type_id: &type_id,
        values: &values,
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission,
    };
    let outcome = plan.finish(plan.scan(&item), &Facts::new());
    assert_eq!((outcome.matched.len(), outcome.matched_more), (12, 8));
}

/// CPU time of this thread, in milliseconds, that a piece of work takes.
fn cpu_millis<T>(work: impl FnOnce() -> T) -> (T, u128) {
    let cpu_time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
    };
    let before = cpu_time();
    let result = work();
    (result, (cpu_time() - before).as_millis())
}

#[test]
fn exploding_patterns_cost_no_more_than_their_steps_say() {
    let mut seed = 7_u64;
    let mut letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if seed >> 33 & 1 == 0 { 'a' } else { 'b' }
    };
    let hostile: String = (0..64 << 10).map(&mut letter).collect();
    let rules = |before: &str| -> Vec<Json> {
        let pattern = |n: usize| format!("{before}[q-r]{{{n}}}");
        let rule =
            |n: usize| json!({"text": {"in": ["text"], "regex": [pattern(9 + 2 * n), pattern(10 + 2 * n)]}});
        (0..16).map(rule).collect()
    };
    let (outcome, dear) =
        cpu_millis(|| outcomes(&rules("a.{0,200}b"), std::slice::from_ref(&hostile)).0.remove(0));
    let (none, cheap) = cpu_millis(|| outcomes(&rules("[x-z]"), &[hostile]).0.remove(0));
    assert_eq!((count_matches(&outcome), count_matches(&none), none.errored.len()), (0, 0, 0));
    // The engine without states would take 100 ms of a release build for each pattern. The steps of a rule do not
    // suffice for that.
    assert_eq!(outcome.errored.len(), 16);
    assert!(outcome.errored.iter().all(|it| it.reason == "deadline"));
    assert!(dear < 500 + 40 * cheap, "{dear} ms against {cheap} ms");
}

fn random_letters(bytes: usize) -> String {
    let mut seed = 7_u64;
    let letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if seed >> 33 & 1 == 0 { 'a' } else { 'b' }
    };
    (0..bytes).map(letter).collect()
}

#[test]
fn patterns_of_one_condition_share_the_steps_of_a_rule() {
    let list: Vec<_> = (1..=49).map(|n| format!("a[ab]{{{n}}}c")).collect();
    let rules = [
        json!({"text": {"in": ["text"], "regex": list}}),
        json!({"text": {"in": ["text"], "any_of": ["abba"]}}),
        json!({"text": {"in": ["text"], "regex": "a[ab]{30}c"}}),
    ];
    let (outcomes, warnings) =
        outcomes(&rules, &[random_letters(64 << 10), format!("abba{}c", "a".repeat(40))]);
    let errored: Vec<_> = outcomes[0].errored.iter().map(|it| it.rule.as_str()).collect();
    // The other rules still have the steps of the item, even a rule with one of the patterns.
    assert_eq!((errored, count_matches(&outcomes[0])), (vec!["r0"], 1));
    assert_eq!((outcomes[1].errored.len(), count_matches(&outcomes[1])), (0, 3));
    assert_eq!(warnings.iter().filter(|tag| **tag == "regex_costly").count(), 1, "{warnings:?}");
}

#[test]
fn lint_states_the_steps_on_an_almost_matching_text() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let list: Vec<_> = (1..=49).map(|n| format!("a[ab]{{{n}}}c")).collect();
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "regex": list}}});
    let sources = [RuleSource { document: &document, version: "1" }];
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let warnings = plan.warnings();
    let costly = warnings.iter().find(|it| it.tag() == "regex_costly").unwrap().to_string();
    let steps: u64 = costly.split("up to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((25_000_000..45_000_000).contains(&steps), "{costly}");
    assert!(costly.contains("on a text of 65536 bytes") && costly.contains("it ends as `errored: deadline`"));
}

#[test]
fn interrupted_evaluation_has_no_outcome() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "regex": "a[ab]{40}c"}}});
    let sources = [RuleSource { document: &document, version: "1" }];
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let type_id = TypeId::new("post");
    let scan = |text: String, interrupt: &Interrupt| {
        let submission = SubmissionId::random();
        let values = &Data(text);
        plan.scan_until(
            &Item { type_id: &type_id, values, user: None, on: Trigger::Item, now: Millis(0), submission },
            interrupt,
        )
    };
    let interrupt = Interrupt::default();
    assert!(scan(random_letters(64 << 10), &interrupt).is_some());
    interrupt.request();
    assert!(scan(random_letters(64 << 10), &interrupt).is_none());
    assert!(
        scan("a text of usual length".to_owned(), &interrupt).is_some(),
        "a short evaluation ends before it checks the interrupt"
    );
    let due = Interrupt::default().with_deadline(std::time::Instant::now());
    assert!(scan(random_letters(64 << 10), &due).is_none());
}
