//! Checks that each quote of a table is closed where its column ends.
//!
//! CSV readers forgive both errors, and the text behind a forgotten quote becomes part of the text before it.

use memchr::{memchr, memchr3};

use crate::error::{ConvertError, ErrorKind};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Beginning,
    Plain,
    Quoted,
    /// Reader has passed a quote that closes the cell, unless another follows.
    Closing,
}

/// State of the check.
#[derive(Debug, Default)]
pub(super) struct Quotes {
    at: At,
    /// Rows that have ended; empty lines are none.
    rows: u64,
    /// Columns of this row so far.
    columns: u64,
}

impl Quotes {
    /// The bytes that come next.
    pub(super) fn pass(&mut self, file: &str, bytes: &[u8]) -> Result<(), ConvertError> {
        self.check_stop(bytes).map_err(|()| self.wrong(file, EARLY))?;
        if self.columns > MOST_CELLS {
            let detail = format!("the row has more than {MOST_CELLS} cells");
            return Err(ConvertError::content(file, self.rows + 1, ErrorKind::Columns, detail));
        }
        Ok(())
    }

    fn check_stop(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut rest = bytes;
        loop {
            let next = match self.at {
                At::Beginning | At::Closing => (!rest.is_empty()).then_some(0),
                At::Plain => memchr3(b',', b'\n', b'\r', rest),
                At::Quoted => memchr(b'"', rest),
            };
            let Some(next) = next else { return Ok(()) };
            let byte = rest[next];
            rest = &rest[next + 1..];
            self.at = match (self.at, byte) {
                (At::Quoted, _) => At::Closing,
                (At::Beginning | At::Closing, b'"') => At::Quoted,
                (_, b',') => {
                    self.columns += 1;
                    At::Beginning
                }
                (at, b'\n' | b'\r') => {
                    self.rows += u64::from(at != At::Beginning || self.columns > 0);
                    self.columns = 0;
                    At::Beginning
                }
                (At::Closing, _) => return Err(()),
                (At::Beginning | At::Plain, _) => At::Plain,
            };
        }
    }

    /// There are no more.
    pub(super) fn end(&self, file: &str) -> Result<(), ConvertError> {
        if self.at == At::Quoted { Err(self.wrong(file, OPEN)) } else { Ok(()) }
    }

    fn wrong(&self, file: &str, what: &str) -> ConvertError {
        let detail = format!("column {}: {what}", self.columns + 1);
        ConvertError::content(file, self.rows + 1, ErrorKind::Quote, detail)
    }
}

/// A reader keeps where each cell ends, which takes more room than an empty cell.
pub(crate) const MOST_CELLS: u64 = 1 << 20;
const EARLY: &str = "a quote ends before its column does: the one before it is missing, or quotes in the text are not doubled";
const OPEN: &str = "a quote is never closed";

/// Checks the quotes of a row that is one line.
pub(crate) fn of_line(line: &[u8]) -> Result<(), &'static str> {
    let mut quotes = Quotes::default();
    quotes.check_stop(line).map_err(|()| EARLY)?;
    let over = "a quote is not closed on its line: it never is, or its cell has several lines, which no list of votes \
                is read with";
    if quotes.at == At::Quoted { Err(over) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn judged(text: &str, drip: usize) -> String {
        let mut quotes = Quotes::default();
        let passed = text.as_bytes().chunks(drip).try_for_each(|some| quotes.pass("t.csv", some));
        passed.and_then(|()| quotes.end("t.csv")).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_quote_is_closed_where_its_column_ends() {
        for drip in [1, 3, 1000] {
            for good in [
                "",
                "a,b\n1,\"two, \"\"three\"\"\nfour\"\n",
                "\"\",\"\"\r\n\r\n\"\"\"\"",
                "6\" of rain,it \"rained\"\n",
                "\"a\"",
            ] {
                assert_eq!(judged(good, drip), "", "{good}");
            }
            // The second row takes the third one in.
            let merged = judged("id,text\r\n\n1,\"one\r\n2,\"two\"\r\n3,\"three\"\r\n", drip);
            assert!(merged.starts_with("t.csv, row 2: column 2: a quote ends before"), "{merged}");
            let open = judged("id,text\n1,one\n2,\"two\n3,three\n", drip);
            assert_eq!(open, "t.csv, row 3: column 2: a quote is never closed");
        }
    }
}
