//! A file that may not grow any more (`ulimit -f`) ends a process, unless it asks for the signal: then writing to the file
//! fails, which is told like a full disk.

/// Ignores SIGXFSZ for the rest of the process, so that a full file is an error of the write.
#[cfg(unix)]
pub(crate) fn outlive() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    /// SIGXFSZ on all systems that this is built for.
    const FILE_TOO_LARGE: std::ffi::c_int = 25;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // Whoever has asked once has asked for the life of the process.
    drop(signal(SignalKind::from_raw(FILE_TOO_LARGE))?);
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn outlive() -> anyhow::Result<()> {
    Ok(())
}
