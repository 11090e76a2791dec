//! Ignores SIGXFSZ. The default action ends the process when a file reaches the size limit (`ulimit -f`); when ignored, the
//! write fails and is handled like a full disk.

/// Ignores SIGXFSZ for the rest of the process, so that a write beyond the limit returns an error.
#[cfg(unix)]
pub(crate) fn ignore() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    /// SIGXFSZ on all systems that this is built for.
    const FILE_TOO_LARGE: std::ffi::c_int = 25;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // Tokio never restores the default action, so the handle may be dropped.
    drop(signal(SignalKind::from_raw(FILE_TOO_LARGE))?);
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn ignore() -> anyhow::Result<()> {
    Ok(())
}
