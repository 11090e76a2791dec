//! Words in other scripts and in disguise: whether they are found, and the whole characters of the original at their place.

use serde_json::json;
use tidegate_rules::{
    Explained, Facts, Fields, Hit, Item, Kind, Limits, Plan, RuleSource, Shape, Trigger, Value, Vocabulary,
};
use tidegate_schemas::ids::{Millis, SubmissionId, TypeId};

struct Data<'t>(&'t str);

impl Fields for Data<'_> {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        (name == "text").then_some(Value::Text(self.0))
    }
}

fn hit(text: &str, kind: &str, word: &str, view: &str) -> Option<Hit> {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), [("text", Shape::one(Kind::Text))]);
    let document = json!({"rule": "r", "when": {"text": {"in": ["text"], kind: [word], "view": view}}});
    let sources = [RuleSource { document: &document, version: "1" }];
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let item = Item {
        type_id: &TypeId::new("post"),
        values: &Data(text),
        user: None,
        on: Trigger::Item,
        now: Millis(0),
        submission: SubmissionId::random(),
    };
    let outcome = plan.finish(plan.scan(&item), &Facts::new());
    match &outcome.matched.first()?.tree {
        Explained::Text(text) => text.hits.first().cloned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn word_hits_map_to_whole_characters_of_the_original() {
    const COARSE: &[&str] = &["folded", "collapsed"];
    const ALL: &[&str] = &["lower", "folded", "collapsed"];
    let cases = [
        // Marks that combine: one letter may be written in two ways, and with several marks.
        ("un cafe\u{301} noir", "café", COARSE, "cafe"),
        ("un café noir", "cafe\u{301}", COARSE, "café"),
        ("z\u{323}\u{307}\u{334}a\u{301}lgo", "zalgo", COARSE, "z\u{323}\u{307}\u{334}a\u{301}lgo"),
        ("un caf\u{e9}", "cafe\u{301}", COARSE, "café"),
        // Invisible characters.
        ("a sc\u{200b}a\u{200d}m!", "scam", COARSE, "sc\u{200b}a\u{200d}m"),
        ("\u{feff}s\u{ad}c\u{2060}am", "scam", COARSE, "s\u{ad}c\u{2060}am"),
        // From right to left, with points, and with marks that turn the direction.
        ("שלום עולם", "עולם", ALL, "עולם"),
        ("שָׁלוֹם", "שלום", COARSE, "שָׁלוֹם"),
        ("مَرحبا", "مرحبا", COARSE, "مَرحبا"),
        ("\u{202e}scam\u{202c}", "scam", ALL, "scam"),
        ("s\u{2066}ca\u{2069}m", "scam", COARSE, "s\u{2066}ca\u{2069}m"),
        // No spaces between words.
        ("これは日本語です", "日本語", ALL, "日本語"),
        ("한국어를 배워요", "한국어", ALL, "한국어"),
        // Wide and half-width forms.
        ("ｓｃａｍ ｃｏｉｎ", "scam", COARSE, "ｓｃａｍ"),
        ("ＳＣＡＭ", "ｓｃａｍ", ALL, "ＳＣＡＭ"),
        ("ｶﾞｲﾄﾞです", "ガイド", COARSE, "ｶﾞｲﾄ"),
        // Sequences of emoji: their parts are characters, and their joiners are invisible.
        ("👨\u{200d}👩\u{200d}👧!", "👨\u{200d}👩\u{200d}👧", ALL, "👨\u{200d}👩\u{200d}👧"),
        ("👨\u{200d}👩\u{200d}👧!", "👩", ALL, "👩"),
        ("👍🏽", "👍", ALL, "👍"),
        ("1\u{fe0f}\u{20e3}0\u{fe0f}\u{20e3}", "10", COARSE, "1\u{fe0f}\u{20e3}0"),
        ("❤\u{fe0f}‍🔥", "❤🔥", COARSE, "❤\u{fe0f}‍🔥"),
        ("🇩🇪", "de", COARSE, "🇩🇪"),
        // Turkish i.
        ("İSTANBUL", "istanbul", COARSE, "İSTANBUL"),
        ("İSTANBUL", "i\u{307}stanbul", ALL, "İSTANBUL"),
        ("ISPARTA ılık", "ılık", ALL, "ılık"),
        ("DIYARBAKIR", "dıyarbakır", COARSE, "DIYARBAKIR"),
        // Sharp s, ligatures, and other letters that become two.
        ("STRAẞE", "straße", ALL, "STRAẞE"),
        ("Straße", "STRASSE", COARSE, "Straße"),
        ("STRASSE", "straße", COARSE, "STRASSE"),
        ("eﬃcient", "fi", COARSE, "ﬃ"),
        ("ǆungla", "dž", COARSE, "ǆ"),
        // Letters with two small or capital forms.
        ("ΟΔΟΣ οδος", "οδοσ", ALL, "ΟΔΟΣ"),
        ("\u{212a}ELVIN", "kelvin", ALL, "\u{212a}ELVIN"),
        ("Ångström", "a\u{30a}ngstro\u{308}m", COARSE, "Ångström"),
        // Other letters that look the same, and letters for sounds.
        ("sсаm", "scam", COARSE, "sсаm"),
        ("𝓼𝓬𝓪𝓶 🅂🄲🄰🄼", "scam", COARSE, "𝓼𝓬𝓪𝓶"),
        ("heeeello", "heello", &["collapsed"], "heeeello"),
    ];
    let mut wrong = Vec::new();
    for (text, word, views, expected) in cases {
        for view in ["raw", "lower", "folded", "collapsed"] {
            let first_hit = hit(text, "any_of", word, view);
            if let Some(hit) = &first_hit {
                assert_eq!(
                    text.get(hit.start..hit.end),
                    Some(&*hit.found),
                    "{word} in {text}, {view}: {hit:?}"
                );
            }
            if view != "raw" {
                let expected_text = Some(expected).filter(|_| views.contains(&view));
                let found_text = first_hit.as_ref().map(|hit| &*hit.found);
                if found_text != expected_text {
                    wrong.push(format!(
                        "{word:?} in {text:?}, {view}: {found_text:?} instead of {expected_text:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_whole_word_ends_where_letters_of_its_script_end() {
    for (text, word, view, alone) in [
        ("straße", "stra", "lower", false),
        ("cafe\u{301}", "cafe", "lower", false),
        ("cafe\u{301}", "cafe", "folded", true),
        ("(日本)語", "日本", "lower", true),
        ("日本語", "日本", "lower", false),
        ("עולם!", "עולם", "lower", true),
        ("scam\u{200b}coin", "scam", "folded", false),
        ("scam\u{200b} coin", "scam", "folded", true),
        ("👍🏽scam👍", "scam", "lower", true),
        ("xİ", "x", "folded", false),
        ("coin² ①scam", "coin", "lower", true),
        ("coin² ①scam", "scam", "raw", true),
        ("coin٣", "coin", "lower", false),
    ] {
        assert_eq!(hit(text, "words", word, view).is_some(), alone, "{word:?} in {text:?}, {view}");
    }
}
