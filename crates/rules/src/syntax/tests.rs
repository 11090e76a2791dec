//! Errors of conditions that have several at once.

use serde_json::json;

use super::parse;
use crate::limits::Limits;

#[test]
fn errors_of_one_condition_are_all_listed() {
    for (when, wanted) in [
        (
            json!({"strikes": {"gte": 0, "within": "soon"}}),
            &["/when/strikes/within type", "/when/strikes type"][..],
        ),
        (
            json!({"text": {"in": ["text"], "min_distinct": 0}}),
            &["/when/text/min_distinct type", "/when/text shape"],
        ),
        (
            json!({"text": {"in": [], "view": "folded", "word": true, "min_distinct": 0, "regex": [""]}}),
            &[
                "/when/text/in empty",
                "/when/text/min_distinct type",
                "/when/text shape",
                "/when/text/regex/0 empty",
                "/when/text/view shape",
            ],
        ),
        (
            json!({"text": {"in": ["text"], "any_of": [], "words": null, "regex": [""], "view": "lowest"}}),
            &[
                "/when/text/view unknown_value",
                "/when/text shape",
                "/when/text/any_of empty",
                "/when/text/regex/0 empty",
            ],
        ),
        (
            json!({"field": {"path": "", "of": "some", "ignore_case": 1}}),
            &[
                "/when/field/path empty",
                "/when/field/of unknown_value",
                "/when/field/ignore_case shape",
                "/when/field shape",
            ],
        ),
        (
            json!({"field": {"path": "a", "exists": false, "eq": 1, "of": "any"}}),
            &["/when/field shape", "/when/field shape"],
        ),
        (
            json!({"strikes": {"gte": 0}, "field": {"path": 7, "eq": null}}),
            &["/when shape", "/when/field/path shape", "/when/field/eq type", "/when/strikes type"],
        ),
        (
            json!({"all": [], "any": [{"strikes": {"gt": -1}}]}),
            &["/when shape", "/when/all empty", "/when/any/0/strikes type"],
        ),
    ] {
        let rule = json!({"rule": "r", "when": when});
        let errors = parse(&rule, &Limits::default()).err().unwrap_or_default();
        let told: Vec<_> = errors.iter().map(|error| format!("{} {}", error.pointer, error.tag())).collect();
        assert_eq!(told, wanted, "{when}");
    }
}
