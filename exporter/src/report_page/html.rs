//! Writes HTML. Markup is part of the program's text; each text from a bundle passes [`Html::text`], which escapes it.

use std::fmt::{self, Display, Write as _};

/// Page under construction.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup. The lifetime keeps texts of a bundle out.
    pub(super) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends the hash of a script or style to the content security policy, where quotes are not escaped.
    pub(super) fn markup_of_hash(&mut self, hash: &str) -> &mut Self {
        self.0.push_str(hash);
        self
    }

    /// Appends escaped text, for elements and for attributes in double quotes.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        _ = write!(Escaper(&mut self.0), "{text}");
        self
    }

    /// Appends a JSON document as a data element, which scripts read by its id. `<`, `>` and `&` are written as escapes, so that no
    /// text can end the element.
    pub(super) fn json_island(&mut self, id: &'static str, value: &serde_json::Value) -> &mut Self {
        self.markup("<script type=\"application/json\" id=\"").markup(id).markup("\">");
        for char in value.to_string().chars() {
            match char {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => _ = write!(self.0, "\\u{:04x}", u32::from(char)),
                char => self.0.push(char),
            }
        }
        self.markup("</script>\n")
    }

    /// Appends the list elements of a definition list.
    pub(super) fn definition(&mut self, term: &'static str, description: impl Display) -> &mut Self {
        self.markup("<dt>").markup(term).markup("</dt><dd dir=\"auto\">").text(description).markup("</dd>\n")
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

struct Escaper<'t>(&'t mut String);

impl fmt::Write for Escaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            match char {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(char),
                // Control characters are invalid in HTML.
                char if char.is_control() => self.0.push(char::REPLACEMENT_CHARACTER),
                char => self.0.push(char),
            }
        }
        Ok(())
    }
}

/// Formats a number with separators: `1,234,567`. A saturated sum is shown as `at least`.
pub(super) fn format_number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::from(if number == u64::MAX { "at least " } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 vote`, `1,234 votes`.
pub(super) fn format_count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", format_number(number), if number == 1 { "" } else { "s" })
}

/// Formats a share in percent. Shares near 0 and 100 % are not rounded to them.
pub(super) fn format_share(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 1.0 => "<1 %".to_owned(),
        percent if percent > 99.0 && percent < 100.0 => ">99 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut html = Html::default();
        html.text("</script><img src=x onerror='a()'> & \"b\"\u{0}\u{1b}[0m");
        assert_eq!(
            html.finish(),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;\u{fffd}\u{fffd}[0m"
        );
    }

    #[test]
    fn json_has_no_markup_and_keeps_its_value() {
        let value = serde_json::json!({ "a": "</script><!-- & \u{2028} \"" });
        let mut html = Html::default();
        html.json_island("data", &value);
        let html = html.finish();
        let json = html.strip_prefix("<script type=\"application/json\" id=\"data\">").unwrap();
        let json = json.strip_suffix("</script>\n").unwrap();
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap(), value);
    }

    #[test]
    fn numbers_are_readable() {
        let texts = [0, 999, 1_000, 1_234_567].map(format_number);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(format_number(u64::MAX), "at least 18,446,744,073,709,551,615");
        assert_eq!(
            [0.0, 0.004, 0.5, 0.996, 1.0].map(format_share),
            ["0 %", "<1 %", "50 %", ">99 %", "100 %"]
        );
    }
}
