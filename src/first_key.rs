//! Hands over the platform's first key: on a terminal, or otherwise in a private file, because containers keep standard output
//! in their logs.

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use tidegate_catalog::{FirstStartResult, write_private};

use crate::{
    output::{print_error, print_line},
    settings::Settings,
    telemetry::LogFormat,
};

const FILE: &str = "first-key";

pub(crate) fn hand_over(settings: &Settings, first: &FirstStartResult) {
    let (org, key) = (&first.org, first.key.reveal());
    if io::stdout().is_terminal() && settings.telemetry.format == LogFormat::Text {
        print_line(format!(
            "created the organisation `{org}` and an API key for its platform, which is shown only once:"
        ));
        print_line(key);
        return;
    }
    match write(&settings.data.folder, &key) {
        Ok(path) => print_line(format!(
            "created the organisation `{org}`. The key of its platform is in {}, which only its owner may read: move it to the \
             platform and delete the file.",
            path.display()
        )),
        // The organisation exists, so the service starts anyway. The lost key is replaced by creating another one.
        Err(error) => print_error(format!(
            "created the organisation `{org}`, but the key of its platform cannot be written to {}: {error}. Create another one \
             with `tidegate keys create`.",
            settings.data.folder.join(FILE).display()
        )),
    }
}

fn write(folder: &Path, key: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(FILE);
    write_private(&path, format!("{key}\n").as_bytes())?;
    // Absolute, so that the message names the file for any current folder.
    fs::canonicalize(path)
}
