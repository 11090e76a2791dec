//! Runs the properties of the fuzz targets from seeds: valid documents that are cut, joined and garbled.
//!
//! `TIDEGATE_FUZZ_CASES` sets the number of cases for each target, `TIDEGATE_FUZZ_SEED` the first seed.

#[path = "../../../../fuzz/src/rules.rs"]
#[allow(unreachable_pub, reason = "a crate of its own elsewhere")]
mod targets;

const RULES: [&str; 10] = [
    r#"{"rule":"r","status":"live","item_types":["post"],"when":{"text":{"in":["text"],"any_of":["scamcoin"]}}}"#,
    r#"{"rule":"r","when":{"all":[{"field":{"path":"likes","gt":3,"lte":7.5}},{"not":{"text":{"in":["text","tags"],"words":["fine","日本"],"view":"collapsed","min_distinct":2}}}]},"policies":["p"],"actions":[{"id":"a","params":{"n":1}}]}"#,
    r#"{"rule":"r","when":{"any":[{"strikes":{"gte":3,"within":"30d"}},{"score":{"model":"m","label":"x","gte":0.5}}]},"limit":{"per_day":3}}"#,
    r#"{"rule":"r","when":{"geo":{"in":["place"],"within":{"lat":52.5,"lng":13.4,"km":60}}},"expires_at":"2026-01-01T00:00:00.000Z"}"#,
    r#"{"rule":"r","when":{"domain":{"in":["text"],"any_of":["bad.example"]}},"on":["item","report"]}"#,
    r#"{"rule":"r","when":{"media":{"in":["text"],"state":["ok","too_large"]}},"rollout":{"percent":5}}"#,
    r#"{"rule":"r","when":{"expr":"item.data.likes > 3 && item.data.tags.exists(t, t.startsWith('a'))"}}"#,
    r#"{"rule":"r","when":{"field":{"path":"createdAt","lt":{"ago":"7d"}}},"tests":[{"item":{"text":"x"},"expect":true}]}"#,
    r#"{"rule":"r","when":{"any":[{"rule":"other"},{"not":{"rule":"r"}},{"field":{"path":"likes","gt":1}}]}}"#,
    r#"{"rule":"r","when":{"text":{"in":["text"],"regex":["(?i)\\bscam\\w+","[0-9]{2}:[0-9]{2}"]}}}"#,
];

const EXPRS: [&str; 8] = [
    "item.data.likes > 3 && item.data.text.contains('scam')",
    "item.data.tags.exists(t, t == 'a' || size(t) > 3)",
    "!(item.data.verified) || item.data.likes in [1, 2, 3]",
    "item.data.createdAt >= timestamp('2025-06-01T00:00:00.000Z')",
    "has(item.data.text) && item.data.text.matches('(?i)a+b')",
    "item.data.likes * 2 + 1 - 3 / 4 % 5 == -7.5",
    "item.data.tags.all(t, t.startsWith(\"é\\u00e9\") && !t.endsWith('x'))",
    "item.data.text == 'a' ? true : false",
];

const REGEXES: [&str; 14] = [
    "scam(?:coin|bank)s?\0the ScamCoin scambanks",
    "(?i)\\bk[eé]lvin\\b\0\u{212a}elvin KELVIN",
    "(?i)straße|STRASSE\0straẞe",
    "[a-c]{2,3}x(?:yz)+\0abcxyzyz",
    "^.{0,9}end$\0the end",
    "(?m)^line\\s*two$\0a\nline  two\n",
    "\\p{Han}{2}語?\0日本語",
    "(?s).a.{3}b\0\na\n\n\nb",
    "(?:a|ab|abc)(?:d|cd)\0abcd",
    "x*\0",
    "\\d{2,4}-\\d+\\b\0call 555-1234",
    "(?i:ſtop)|ﬁn\0STOP ﬁn",
    "(?x) a b # c\0ab",
    "\\W{3}é+\\B\0 -- éé",
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }

    /// One of the seeds with a few parts removed, inserted, doubled, or replaced by parts of another.
    fn garbled(&mut self, seeds: &[&str]) -> String {
        const PIECES: [&str; 40] = [
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            "\"",
            "'",
            "\\",
            "|",
            "*",
            "+",
            "?",
            ".",
            "^",
            "$",
            ",",
            ":",
            "-",
            "\0",
            "é",
            "日",
            "\u{301}",
            "\u{200b}",
            "İ",
            "ſ",
            "\u{212a}",
            "0",
            "99999999999999999999",
            "1e400",
            "-0.0",
            "null",
            "true",
            "{999}",
            "(?i)",
            "\\b",
            "\\w",
            "[^a]",
            "&&",
            "\n",
        ];
        let mut text: Vec<char> = seeds[self.roll(seeds.len())].chars().collect();
        for _ in 0..self.roll(6) {
            let inserted: Vec<char> = match self.roll(3) {
                0 => Vec::new(),
                1 => PIECES[self.roll(PIECES.len())].chars().collect(),
                _ => {
                    let source: Vec<char> = seeds[self.roll(seeds.len())].chars().collect();
                    let from = self.roll(source.len());
                    source[from..(from + 1 + self.roll(24)).min(source.len())].to_vec()
                }
            };
            let from = self.roll(text.len() + 1);
            let to = (from + [0, 0, 1, 4, 20][self.roll(5)]).min(text.len());
            text.splice(from..to, inserted);
        }
        text.into_iter().collect()
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |value| value.parse().unwrap())
}

fn run(seeds: &[&str], target: fn(&[u8])) {
    let first = setting("TIDEGATE_FUZZ_SEED", 0);
    seeds.iter().for_each(|seed| target(seed.as_bytes()));
    for seed in first..first + setting("TIDEGATE_FUZZ_CASES", 3_000) {
        let document = Dice(seed).garbled(seeds);
        let caught = std::panic::catch_unwind(|| target(document.as_bytes()));
        assert!(caught.is_ok(), "seed {seed}: {document:?}");
    }
}

#[test]
fn garbled_rules_are_refused_with_reason_or_evaluated() {
    run(&RULES, targets::rule);
}

#[test]
fn garbled_expressions_are_refused_with_place_or_evaluated() {
    run(&EXPRS, targets::expr);
}

#[test]
fn garbled_patterns_are_refused_or_match_as_alone() {
    run(&REGEXES, targets::regex);
}
