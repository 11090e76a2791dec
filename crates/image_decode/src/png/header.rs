//! Reads the header of a PNG and of its animation frames.

use super::super::{header::Header, read_int::be32};

/// Length of a frame's control chunk.
const FRAME_CONTROL: usize = 26;

pub(in super::super) fn read(bytes: &[u8]) -> Option<Header> {
    if bytes.get(8..16)? != b"\0\0\0\x0dIHDR" {
        return None;
    }
    let depth = if *bytes.get(24)? == 16 { 2 } else { 1 };
    // Transparency can add an alpha channel, so gray counts as two channels and RGB as four.
    let channels = if matches!(bytes.get(25)?, 0 | 4) { 2 } else { 4 };
    let mut header = Header {
        width: be32(bytes, 16)?,
        height: be32(bytes, 20)?,
        pixel_bytes: channels * depth,
        ..Header::default()
    };
    let (mut at, mut max_frames, mut has_pixels) = (8, None, false);
    while let (Some(length), Some(kind)) = (be32(bytes, at), bytes.get(at + 4..at + 8)) {
        let content = bytes.get(at + 8..).unwrap_or_default();
        let content = &content[..content.len().min(length as usize)];
        match kind {
            b"IEND" => break,
            // A second header is an error, as in libpng: viewers stop there.
            b"IHDR" if at > 8 && has_pixels => break,
            b"IHDR" if at > 8 => return None,
            b"acTL" => {
                let declared = be32(content, 0).filter(|count| *count > 0 && content.len() >= 8);
                max_frames = max_frames.or(declared);
            }
            b"fcTL" => {
                let (Some(width), Some(height)) = (be32(content, 4), be32(content, 8)) else { break };
                // A truncated control chunk does not count as a frame, but the frames before it remain valid.
                if content.len() < FRAME_CONTROL {
                    break;
                }
                if max_frames.is_none_or(|max| header.frames < max) {
                    header.add_frame(width, height);
                }
            }
            // Without `acTL` before the first data, a file is a single picture, even if frames follow.
            b"IDAT" if max_frames.is_none() => break,
            b"IDAT" => {
                header.has_separate_default |= header.frames == 0;
                has_pixels = true;
            }
            _ => {}
        }
        at = at.saturating_add(12).saturating_add(length as usize);
    }
    if max_frames.is_none() || header.frames == 0 {
        header = Header { frames: 0, total_frame_pixels: 0, has_separate_default: false, ..header };
    }
    // The default picture is decoded in addition to the frames.
    if header.has_separate_default {
        header.total_frame_pixels = header.total_frame_pixels.saturating_add(header.canvas_pixels());
    }
    Some(header)
}
