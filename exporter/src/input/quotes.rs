//! Checks that each quoted cell of a table is closed at its end.
//!
//! CSV readers accept a forgotten quote silently and merge the following rows into one cell.

use memchr::{memchr, memchr3};

use crate::error::{ConvertError, ErrorKind};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QuoteState {
    #[default]
    Beginning,
    Plain,
    Quoted,
    /// Behind a quote that closes the cell, unless another quote follows.
    Closing,
}

/// State of the check across blocks of bytes.
#[derive(Debug, Default)]
pub(super) struct QuoteChecker {
    state: QuoteState,
    /// Completed rows, without empty lines.
    rows: u64,
    /// Commas seen in the current row.
    columns: u64,
}

impl QuoteChecker {
    /// Checks the next bytes of the file.
    pub(super) fn check(&mut self, file: &str, bytes: &[u8]) -> Result<(), ConvertError> {
        self.scan(bytes).map_err(|()| self.error(file, EARLY_QUOTE))?;
        if self.columns > MAX_CELLS {
            let detail = format!("the row has more than {MAX_CELLS} cells");
            return Err(ConvertError::content(file, self.rows + 1, ErrorKind::Columns, detail));
        }
        Ok(())
    }

    fn scan(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut unread = bytes;
        loop {
            // At the start of a cell and behind a quote the next byte decides; other states skip ahead.
            let index = match self.state {
                QuoteState::Beginning | QuoteState::Closing => (!unread.is_empty()).then_some(0),
                QuoteState::Plain => memchr3(b',', b'\n', b'\r', unread),
                QuoteState::Quoted => memchr(b'"', unread),
            };
            let Some(index) = index else { return Ok(()) };
            let byte = unread[index];
            unread = &unread[index + 1..];
            self.state = match (self.state, byte) {
                // In a quoted cell the scan stops at quotes only.
                (QuoteState::Quoted, _) => QuoteState::Closing,
                (QuoteState::Beginning | QuoteState::Closing, b'"') => QuoteState::Quoted,
                (_, b',') => {
                    self.columns += 1;
                    QuoteState::Beginning
                }
                (state, b'\n' | b'\r') => {
                    // CSV readers skip empty lines, so they do not count as rows.
                    self.rows += u64::from(state != QuoteState::Beginning || self.columns > 0);
                    self.columns = 0;
                    QuoteState::Beginning
                }
                (QuoteState::Closing, _) => return Err(()),
                (QuoteState::Beginning | QuoteState::Plain, _) => QuoteState::Plain,
            };
        }
    }

    /// Checks that the file does not end within a quoted cell.
    pub(super) fn finish(&self, file: &str) -> Result<(), ConvertError> {
        if self.state == QuoteState::Quoted { Err(self.error(file, OPEN_QUOTE)) } else { Ok(()) }
    }

    fn error(&self, file: &str, problem: &str) -> ConvertError {
        let detail = format!("column {}: {problem}", self.columns + 1);
        ConvertError::content(file, self.rows + 1, ErrorKind::Quote, detail)
    }
}

/// Maximum number of cells of a row. A CSV reader stores the end of each cell, which takes more memory than an empty
/// cell's byte.
pub(crate) const MAX_CELLS: u64 = 1 << 20;
const EARLY_QUOTE: &str = "a quote closes before the end of its cell: the opening quote is missing, or \
    quotes in the text are not doubled";
const OPEN_QUOTE: &str = "a quote is never closed";

/// Checks the quotes of a row that is one line.
pub(crate) fn check_line(line: &[u8]) -> Result<(), &'static str> {
    let mut quotes = QuoteChecker::default();
    quotes.scan(line).map_err(|()| EARLY_QUOTE)?;
    let multi_line_quote = "a quote is not closed on its line: it is never closed, or its cell has \
        several lines, which a list of votes must not have";
    if quotes.state == QuoteState::Quoted { Err(multi_line_quote) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(text: &str, chunk_size: usize) -> String {
        let mut quotes = QuoteChecker::default();
        let result = text.as_bytes().chunks(chunk_size).try_for_each(|chunk| quotes.check("t.csv", chunk));
        result
            .and_then(|()| quotes.finish("t.csv"))
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_quote_is_closed_where_its_column_ends() {
        for chunk_size in [1, 3, 1000] {
            for valid in [
                "",
                "a,b\n1,\"two, \"\"three\"\"\nfour\"\n",
                "\"\",\"\"\r\n\r\n\"\"\"\"",
                "6\" of rain,it \"rained\"\n",
                "\"a\"",
            ] {
                assert_eq!(check(valid, chunk_size), "", "{valid}");
            }
            // The cell takes in the third row.
            let merged = check("id,text\r\n\n1,\"one\r\n2,\"two\"\r\n3,\"three\"\r\n", chunk_size);
            assert!(merged.starts_with("t.csv, row 2: column 2: a quote closes before"), "{merged}");
            let error = check("id,text\n1,one\n2,\"two\n3,three\n", chunk_size);
            assert_eq!(error, "t.csv, row 3: column 2: a quote is never closed");
        }
    }
}
