//! The items that are sent: posts of 300 bytes, each with an id of its own that names its text.
//!
//! It sends nothing, and finds the items again wherever their ids and texts stand: in a record, in a body.

/// Texts differ, so that compression has real work; there are so many of them.
pub const TEXTS: usize = 4_096;
/// The size of an item's `data`.
pub const DATA_BYTES: usize = 300;

/// A word that some of the texts have, for rules that shall match.
pub const MATCHED_WORD: &str = "harbour";

const MARK: &[u8] = b"bench~";
const NUMBER_DIGITS: usize = 10;
const TEXT_DIGITS: usize = 4;
const ID_BYTES: usize = MARK.len() + NUMBER_DIGITS + 1 + TEXT_DIGITS;

/// Words of no rule.
const WORDS: [&str; 64] = [
    "the", "of", "and", "morning", "river", "stone", "a", "to", "in", "window", "garden", "we", "that", "it",
    "market", "train", "with", "for", "is", "coffee", "rain", "yellow", "on", "as", "bridge", "paper", "was",
    "letter", "small", "green", "they", "at", "friend", "holiday", "be", "this", "mountain", "photo", "from",
    "or", "bicycle", "summer", "had", "by", "kitchen", "bread", "not", "but", "story", "evening", "what",
    "all", "music", "harbour", "were", "when", "concert", "island", "your", "can", "said", "north", "there",
    "use",
];

/// The `data` of all texts.
pub struct Pool(Vec<String>);

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    pub fn new() -> Self {
        Self((0..TEXTS).map(data).collect())
    }

    pub fn data(&self, text: usize) -> &str {
        &self.0[text % TEXTS]
    }

    /// Returns true if the text, without the title, has [`MATCHED_WORD`] as a whole word.
    pub fn is_matched(&self, text: usize) -> bool {
        let words = self.data(text).trim_start_matches(r#"{"text":""#).split('"').next().unwrap_or_default();
        words.split(' ').any(|word| word == MATCHED_WORD)
    }
}

/// A post of exactly [`DATA_BYTES`], every field but pictures filled.
fn data(text: usize) -> String {
    let mut draw = Draw(text as u64 + 1);
    let (author, likes) = (draw.next(1_000_000), draw.next(90) + 10);
    let title = format!("{} {} {}", draw.word(), draw.word(), draw.word());
    let rest = format!(
        r#"","title":"{title}","author":{{"id":"user-{author:06}","typeId":"user"}},"createdAt":"2026-01-02T03:04:05.678Z","likes":{likes}}}"#
    );
    let mut data = String::from(r#"{"text":""#);
    while data.len() + rest.len() < DATA_BYTES {
        data.push_str(draw.word());
        data.push(' ');
    }
    data.truncate(DATA_BYTES - rest.len());
    data.push_str(&rest);
    data
}

/// The same texts in every run.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn word(&mut self) -> &'static str {
        WORDS[usize::try_from(self.next(WORDS.len() as u64)).unwrap_or(0)]
    }
}

pub fn id(number: u64, text: usize) -> String {
    format!("bench~{number:010}~{:04}", text % TEXTS)
}

/// A request with `count` items whose ids are set anew before each sending.
pub struct Template {
    pub bytes: Vec<u8>,
    /// Where the number of each item stands.
    numbers: Vec<usize>,
}

impl Template {
    /// `first_text`: which texts it carries.
    pub fn new(pool: &Pool, head: impl Fn(usize) -> String, count: usize, first_text: usize) -> Self {
        let mut body = Vec::from(&br#"{"items":["#[..]);
        let mut numbers = Vec::with_capacity(count);
        for at in 0..count {
            if at > 0 {
                body.push(b',');
            }
            body.extend_from_slice(br#"{"id":""#);
            numbers.push(body.len() + MARK.len());
            body.extend_from_slice(id(0, first_text + at).as_bytes());
            body.extend_from_slice(br#"","typeId":"post","data":"#);
            body.extend_from_slice(pool.data(first_text + at).as_bytes());
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
        let mut bytes = head(body.len()).into_bytes();
        let moved = bytes.len();
        bytes.extend_from_slice(&body);
        numbers.iter_mut().for_each(|at| *at += moved);
        Self { bytes, numbers }
    }

    /// One item as `POST /api/v1/content` takes it.
    pub fn content(pool: &Pool, head: impl Fn(usize) -> String, text: usize) -> Self {
        let start = r#"{"contentType":"post","contentId":""#;
        let body = format!("{start}{}\",\"content\":{}}}", id(0, text), pool.data(text));
        let head = head(body.len());
        let number = head.len() + start.len() + MARK.len();
        Self { bytes: (head + &body).into_bytes(), numbers: vec![number] }
    }

    /// A request without a body.
    pub fn empty(head: impl Fn(usize) -> String) -> Self {
        Self { bytes: head(0).into_bytes(), numbers: Vec::new() }
    }

    /// Numbers its items from `first` on.
    pub fn number(&mut self, first: u64) {
        for (at, number) in self.numbers.iter().zip(first..) {
            let mut number = number;
            for digit in self.bytes[*at..*at + NUMBER_DIGITS].iter_mut().rev() {
                *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
                number /= 10;
            }
        }
    }
}

/// An item found in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub number: u64,
    pub text: usize,
    /// One past its id.
    pub end: usize,
}

/// Every id in the bytes, in their order.
pub fn find(bytes: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + ID_BYTES <= bytes.len() {
        let Some(skip) = bytes[at..].iter().position(|byte| *byte == MARK[0]) else { break };
        at += skip;
        match bytes.get(at..at + ID_BYTES).and_then(parse) {
            Some((number, text)) => {
                at += ID_BYTES;
                found.push(Found { number, text, end: at });
            }
            None => at += 1,
        }
    }
    found
}

fn parse(id: &[u8]) -> Option<(u64, usize)> {
    let rest = id.strip_prefix(MARK)?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let (first, second) = rest.split_at(NUMBER_DIGITS);
    let text = usize::try_from(number(second.strip_prefix(b"~")?)?).ok()?;
    Some((number(first)?, text))
}

/// Whether the item's text stands soon after its id, as it was sent.
pub fn has_data(pool: &Pool, bytes: &[u8], found: Found) -> bool {
    let data = pool.data(found.text).as_bytes();
    let rest = &bytes[found.end..];
    (0..64).any(|skip| rest.get(skip..).is_some_and(|rest| rest.starts_with(data)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_text_is_json_of_the_size() {
        let pool = Pool::new();
        for text in 0..TEXTS {
            let data = pool.data(text);
            assert_eq!(data.len(), DATA_BYTES);
            let data: serde_json::Value = serde_json::from_str(data).unwrap();
            assert!(data["text"].as_str().unwrap().len() > 50, "{data}");
        }
    }

    #[test]
    fn content_has_the_number_and_the_text() {
        let pool = Pool::new();
        let mut template = Template::content(&pool, |bytes| format!("{bytes} "), 7);
        template.number(12);
        let body = &template.bytes[template.bytes.iter().position(|byte| *byte == b'{').unwrap()..];
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        assert_eq!(body["contentId"], id(12, 7));
        assert_eq!(body["content"].to_string().len(), DATA_BYTES);
    }

    #[test]
    fn some_texts_have_the_matched_word() {
        let pool = Pool::new();
        let matched = (0..TEXTS).filter(|text| pool.is_matched(*text)).count();
        assert!(matched > TEXTS / 20 && matched < TEXTS * 19 / 20, "{matched} of {TEXTS}");
    }

    #[test]
    fn what_is_sent_is_found_again() {
        let pool = Pool::new();
        let mut template = Template::new(&pool, |bytes| format!("{bytes} "), 100, 4_090);
        template.number(9_999_999_850);
        let found = find(&template.bytes);
        assert_eq!(found.len(), 100);
        for (at, (item, number)) in found.iter().zip(9_999_999_850..).enumerate() {
            assert_eq!((item.number, item.text), (number, (4_090 + at) % TEXTS));
            assert!(has_data(&pool, &template.bytes, *item));
        }
        let body = &template.bytes[template.bytes.iter().position(|byte| *byte == b'{').unwrap()..];
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        assert_eq!(body["items"][99]["id"], id(9_999_999_949, 93));
    }
}
