//! Hands the platform's first key over: on a terminal, or else in a private file, because containers keep standard output in
//! their logs.

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use tidegate_catalog::{FirstStart, write_private};

use crate::{
    output::{print_error, print_line},
    settings::Settings,
    telemetry::LogFormat,
};

const FILE: &str = "first-key";

pub(crate) fn hand_over(settings: &Settings, first: &FirstStart) {
    let (org, key) = (&first.org, first.key.reveal());
    if io::stdout().is_terminal() && settings.telemetry.format == LogFormat::Text {
        print_line(format!(
            "made the organisation `{org}`, with a key for its platform. It is shown this once:"
        ));
        print_line(key);
        return;
    }
    match write(&settings.data.folder, &key) {
        Ok(path) => print_line(format!(
            "made the organisation `{org}`. The key of its platform is in {}, which only its owner may read: move it to the \
             platform and delete the file.",
            path.display()
        )),
        // The organisation is there, so the service starts. Nobody has the key, and another one is made in its place.
        Err(error) => print_error(format!(
            "made the organisation `{org}`, but the key of its platform cannot be written to {}: {error}. Create another one \
             with `tidegate keys create`.",
            settings.data.folder.join(FILE).display()
        )),
    }
}

fn write(folder: &Path, key: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(FILE);
    write_private(&path, format!("{key}\n").as_bytes())?;
    fs::canonicalize(path)
}
