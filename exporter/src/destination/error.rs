//! Error of a destination: names the place and the key, and tells the answer and the remedy. It never contains a secret.

use std::{fmt, io};

/// Longest part of a server's message that is repeated.
const MAX_ANSWER_CHARS: usize = 300;

/// Error of one operation.
#[derive(Debug)]
pub struct DestinationError {
    /// Folder or bucket with its server.
    place: String,
    key: String,
    answer: String,
    remedy: &'static str,
}

impl fmt::Display for DestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key, answer, remedy } = self;
        write!(f, "{place}, key {key}: {answer}: {remedy}")
    }
}

impl std::error::Error for DestinationError {}

impl DestinationError {
    pub(super) fn invalid_key(place: String, key: &str) -> Self {
        Self {
            place,
            key: format!("{key:?}"),
            answer: "it is no relative name".to_owned(),
            remedy: "use letters, digits, `-`, `_`, `.` and `=` between single slashes",
        }
    }

    pub(super) fn io(place: String, key: &str, error: &io::Error) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "create the folder, or mount its disk",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "let the user of the process write there"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                "free space on the disk, or name another folder"
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                "remove the file or folder of this name, or name another folder"
            }
            _ => "check the disk",
        };
        Self { place, key: key.to_owned(), answer: error.to_string(), remedy }
    }

    /// Error of reading the local file that is sent.
    pub(super) fn local_file(place: String, key: &str, error: &io::Error) -> Self {
        Self {
            place,
            key: key.to_owned(),
            answer: format!("the exported file cannot be read: {error}"),
            remedy: "check the disk of `export.work_folder`",
        }
    }

    pub(super) fn bucket(place: String, key: &str, error: &object_store::Error) -> Self {
        let text = describe_sources(error);
        let answer = ServerAnswer::read(&text);
        let remedy = answer.remedy();
        Self { place, key: key.to_owned(), answer: answer.describe(), remedy }
    }
}

/// True if the error tells that the object, and not its bucket, is missing.
pub(super) fn is_missing_object(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
        && !matches!(ServerAnswer::read(&describe_sources(error)).code.as_deref(), Some("NoSuchBucket"))
}

/// Joins the messages of an error and its causes, without repetitions.
fn describe_sources(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = cause.source();
    }
    text
}

/// Answer of an S3-compatible server, read from the message of the client. The client's type of the answer is private.
#[derive(Debug, Default)]
struct ServerAnswer {
    /// HTTP status; `None` without an answer.
    status: Option<u16>,
    /// Code of S3, such as `NoSuchBucket`.
    code: Option<String>,
    message: String,
}

impl ServerAnswer {
    fn read(text: &str) -> Self {
        let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        let code = element(text, "Code");
        let message = match (element(text, "Message"), &code, status) {
            (Some(message), ..) => message,
            (None, Some(_), _) | (None, None, Some(_)) => String::new(),
            // No answer: the last cause is the most precise one.
            (None, None, None) => text.rsplit(" - ").next().unwrap_or(text).to_owned(),
        };
        Self { status, code, message: message.chars().take(MAX_ANSWER_CHARS).collect() }
    }

    fn describe(&self) -> String {
        let answer = match (self.status, &self.code) {
            (Some(status), Some(code)) => format!("the server answers {status} {code}"),
            (Some(status), None) => format!("the server answers {status}"),
            (None, Some(code)) => format!("the server answers {code}"),
            (None, None) => "the server does not answer".to_owned(),
        };
        if self.message.is_empty() { answer } else { format!("{answer} ({})", self.message) }
    }

    fn remedy(&self) -> &'static str {
        match (self.code.as_deref(), self.status) {
            (Some("NoSuchBucket"), _) => "create the bucket, or correct `url`",
            (Some("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken"), _) | (_, Some(401)) => {
                "correct `access_key_id` and `secret_access_key`"
            }
            (Some("AuthorizationHeaderMalformed" | "PermanentRedirect"), _) | (_, Some(301 | 307)) => {
                "set `region` and `endpoint` to those of the bucket"
            }
            (Some("RequestTimeTooSkewed"), _) => "set the clock of this machine",
            (Some("EntityTooLarge" | "QuotaExceeded" | "XMinioStorageFull"), _) | (_, Some(507)) => {
                "free space in the bucket, or raise its quota"
            }
            (_, Some(403)) => {
                "correct `access_key_id` and `secret_access_key`, or allow the key to put, get, list and delete objects \
                 of the bucket"
            }
            (None, None) => "check `endpoint`, its certificate and the network",
            _ => "check the server; the export is repeated",
        }
    }
}

/// Returns the text of the first XML element of the name.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(content.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_tells_code_message_and_remedy() {
        let answer = ServerAnswer::read(
            "Error performing PUT http://h/b/k in 2ms - Server returned non-2xx status code: 403 Forbidden: <Error><Code>\
             SignatureDoesNotMatch</Code><Message>no match</Message><StringToSign>AWS4 x</StringToSign></Error>",
        );
        assert_eq!(answer.describe(), "the server answers 403 SignatureDoesNotMatch (no match)");
        assert_eq!(answer.remedy(), "correct `access_key_id` and `secret_access_key`");
        let answer =
            ServerAnswer::read("Error performing PUT http://h/b/k in 2ms - HTTP error: connection refused");
        assert_eq!(answer.describe(), "the server does not answer (HTTP error: connection refused)");
    }
}
