//! Searches for words and patterns one after the other in each text. The forms of texts are in `viewed`.

use ConditionResult::{Failed, Passed};
use regex::Regex;
use tidegate_rules::{
    ConditionResult, EntryName, Explained, Hit, TextExplained, Value,
    leaves::text::{Search, Text},
};
use tidegate_schemas::banks::BankKind;

use super::{
    Interpreter,
    around::Lookup,
    places, short,
    viewed::{Viewed, in_word, is_unseen},
};

/// Returns the searched part of a text: it does not end inside of a word or host, unless that is a long one. Characters that
/// browsers remove from an address do not count.
fn beginning(text: &str, most: usize, address: bool) -> &str {
    let unseen = |c: char| is_unseen(c) || address && places::LEFT_OUT.contains(c);
    let is_within = |(at, c): &(usize, char)| bytes(&text[..at + c.len_utf8()], address) <= most;
    let end = text.char_indices().take_while(is_within).map(|(at, c)| at + c.len_utf8()).last();
    let (cut, behind) = text.split_at(end.unwrap_or(0));
    let is_near = |at: usize, c: char| at + c.len_utf8() <= 1_024;
    let next_chars: Vec<char> =
        behind.char_indices().take_while(|(at, c)| is_near(*at, *c)).map(|(_, c)| c).collect();
    let parts = cut.len() < text.len()
        && next_chars.iter().find(|c| !unseen(**c)).is_none_or(|c| in_word(*c) || places::is_letter(*c));
    if !parts {
        return cut;
    }
    let ours = |c: char| in_word(c) || places::is_letter(c) || unseen(c);
    let last = cut.char_indices().rev().find(|(_, c)| !ours(*c)).map_or(0, |(at, c)| at + c.len_utf8());
    // The first letter may lie across the border of the bytes before the limit.
    let mut left = cut.chars().filter(|c| !unseen(*c)).map(char::len_utf8).sum::<usize>();
    let mut first = 0;
    for (at, c) in cut.char_indices() {
        if left <= 1_024 {
            break;
        }
        left -= if unseen(c) { 0 } else { c.len_utf8() };
        first = at + c.len_utf8();
    }
    if last > first || first == 0 { &cut[..last] } else { cut }
}

/// Bytes that count for the limit.
pub(super) fn bytes(text: &str, address: bool) -> usize {
    if address { text.split(|c| places::LEFT_OUT.contains(c)).map(str::len).sum() } else { text.len() }
}

impl Interpreter<'_> {
    /// Searched texts, together no longer than the limit.
    pub(super) fn texts(&self, path: &str) -> Vec<(Option<String>, String)> {
        let mut left = self.limits.text_bytes;
        let mut texts = Vec::new();
        for (element, text) in self.all_texts(path) {
            let searched = beginning(&text, left, self.is_address(path));
            left =
                if searched.len() < text.len() { 0 } else { left - bytes(searched, self.is_address(path)) };
            if !searched.is_empty() || text.is_empty() {
                texts.push((element, searched.to_owned()));
            }
        }
        texts
    }

    /// Texts of the item at a path, or of a model.
    fn all_texts(&self, path: &str) -> Vec<(Option<String>, String)> {
        let Some(model) = path.strip_prefix("signal:") else {
            let values = self.values(path).unwrap_or_default().into_iter();
            return values
                .filter_map(|(element, value)| match value {
                    Value::Text(text) => Some((element, text.to_owned())),
                    _ => None,
                })
                .collect();
        };
        let texts = match self.around.scores(model) {
            Lookup::Found(scores) => scores.texts,
            Lookup::Unknown | Lookup::Unavailable => Vec::new(),
        };
        let is_list = texts.len() > 1;
        let nth = |nth: usize| is_list.then(|| nth.to_string());
        texts.iter().enumerate().map(|(place, text)| (nth(place), text.to_string())).collect()
    }

    pub(super) fn text(&self, text: &Text) -> ConditionResult {
        if self.first_hits(text).iter().flatten().count() >= text.min_distinct { Passed } else { Failed }
    }

    /// First place of each needle.
    fn first_hits(&self, text: &Text) -> Vec<Option<Hit>> {
        let without_entry =
            |needles: &[String]| needles.iter().map(|needle| (needle.clone(), None)).collect();
        let (needles, whole): (Vec<(String, Option<EntryName>)>, _) = match &text.search {
            Search::AnyOf { words, whole_word: whole } | Search::AllOf { words, whole_word: whole } => {
                (without_entry(words), Some(*whole))
            }
            Search::Regex(patterns) => (without_entry(patterns), None),
            Search::Bank { bank, whole_word: whole } => {
                let bank = self.bank(bank);
                let words = bank.kind == BankKind::Text;
                let usable = |value: &str| {
                    if words {
                        !Viewed::new(value, text.view).text.is_empty()
                    } else {
                        Regex::new(value).is_ok()
                    }
                };
                let usable = bank.entries.iter().filter(|entry| usable(&entry.value));
                let with_names = usable.map(|entry| {
                    (
                        entry.value.to_string(),
                        Some(EntryName {
                            bank: bank.key.clone(),
                            id: entry.id.to_string().into(),
                            labels: entry.labels.clone(),
                        }),
                    )
                });
                (with_names.collect(), words.then_some(*whole))
            }
        };
        // Needles with the same form in the view count once where distinct ones are required.
        let counts = text.min_distinct > 1 && !matches!(text.search, Search::AllOf { .. });
        let is_same = |a: &String, b: &String| match whole {
            Some(_) => Viewed::new(a, text.view).letters() == Viewed::new(b, text.view).letters(),
            None => a == b,
        };
        let first =
            |nth: usize| !counts || !needles[..nth].iter().any(|before| is_same(&before.0, &needles[nth].0));
        (0..needles.len())
            .filter(|nth| first(*nth))
            .map(|nth| self.first_hit(text, &needles[nth].0, whole, needles[nth].1.as_ref()))
            .collect()
    }

    fn first_hit(
        &self,
        text: &Text,
        needle: &str,
        whole: Option<bool>,
        entry: Option<&EntryName>,
    ) -> Option<Hit> {
        for field in &text.fields {
            for (element, original) in self.texts(field) {
                let viewed = Viewed::new(&original, text.view);
                let place = match whole {
                    Some(whole) => viewed.word(&Viewed::new(needle, text.view), whole, &original),
                    None => Regex::new(needle)
                        .unwrap()
                        .find(&viewed.text)
                        .map(|found| (found.start(), found.end())),
                };
                if let Some((start, end)) = place {
                    let (start, end) = viewed.original(start, end, original.len());
                    return Some(Hit {
                        field: field.clone(),
                        element,
                        sought: short(needle, self.limits),
                        start,
                        end,
                        found: short(&original[start..end], self.limits),
                        entry: entry.cloned(),
                    });
                }
            }
        }
        None
    }

    pub(super) fn text_explained(&self, text: &Text, alone: ConditionResult) -> Explained {
        let mut hits: Vec<_> = self.first_hits(text).into_iter().flatten().collect();
        let has_more = hits.len() > self.limits.hits;
        hits.truncate(self.limits.hits);
        let (fields, view) = (text.fields.clone(), text.view);
        Explained::Text(TextExplained { outcome: alone, fields, view, hits, more: has_more })
    }
}
