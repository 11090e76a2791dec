//! Decompresses request bodies in bounded steps. The limits of a body are checked in `body`.

use std::io::{self, BufRead, ErrorKind, Read as _};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use tidegate_schemas::validation_error::tag;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::Problem;

/// Accepted codings, in the form of `Accept-Encoding`.
const ACCEPTED_CODINGS: HeaderValue = HeaderValue::from_static("gzip, zstd");

/// Window limit of zstd by RFC 9659: 8 MiB. A stream with a larger window could claim that memory for each request.
const MAX_WINDOW_LOG: u32 = 23;

/// Memory of a gzip decoder: its window and code tables.
const GZIP_BYTES: usize = 48 << 10;

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    /// Reads `Content-Encoding`. `None`: the body is not compressed.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let values = headers.get_all(header::CONTENT_ENCODING).iter();
        let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut coding = None;
        for name in names.map(<[u8]>::trim_ascii) {
            let is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
            let named_coding = match name {
                _ if name.is_empty() || is("identity") => continue,
                _ if is("gzip") || is("x-gzip") => Self::Gzip,
                _ if is("zstd") => Self::Zstd,
                _ => return Err(unsupported_coding()),
            };
            // Several codings would multiply the work of one body.
            if coding.replace(named_coding).is_some() {
                return Err(unsupported_coding());
            }
        }
        Ok(coding)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

fn unsupported_coding() -> Problem {
    let detail = "Send it with one `Content-Encoding` of `gzip` or `zstd`, or without any.";
    let title = "The compression of the body is not supported.";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, tag::INVALID_INPUT, title, detail)
        .with_header(header::ACCEPT_ENCODING, ACCEPTED_CODINGS)
}

/// Decoder of one body.
pub(crate) struct Decoder {
    coding: Coding,
    state: DecoderState,
}

enum DecoderState {
    Gzip(Box<MultiGzDecoder<DecoderInput>>),
    Zstd {
        context: DCtx<'static>,
        input: DecoderInput,
        /// True between two frames, where the stream may end.
        is_between_frames: bool,
    },
}

impl Decoder {
    pub(crate) fn new(coding: Coding) -> Self {
        let input = DecoderInput::default();
        let state = match coding {
            Coding::Gzip => DecoderState::Gzip(Box::new(MultiGzDecoder::new(input))),
            Coding::Zstd => {
                let mut context = DCtx::create();
                // The call cannot fail: the constant lies within the parameter's bounds.
                let _set = context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG));
                DecoderState::Zstd { context, input, is_between_frames: false }
            }
        };
        Self { coding, state }
    }

    /// Memory of the decoder itself in bytes.
    pub(crate) fn memory(&self) -> usize {
        match &self.state {
            DecoderState::Gzip(_) => GZIP_BYTES,
            DecoderState::Zstd { context, .. } => context.sizeof(),
        }
    }

    /// Passes the next bytes of the body on; `None` marks its end.
    pub(crate) fn receive(&mut self, bytes: Option<Bytes>) {
        let input = match &mut self.state {
            DecoderState::Gzip(decoder) => decoder.get_mut(),
            DecoderState::Zstd { input, .. } => input,
        };
        match bytes {
            Some(bytes) => input.bytes = bytes,
            None => input.is_complete = true,
        }
    }

    /// Writes the next decompressed bytes. Returns 0 once all received bytes are decompressed.
    pub(crate) fn decode(&mut self, out: &mut [u8]) -> Result<usize, Problem> {
        let decoded = match &mut self.state {
            DecoderState::Gzip(decoder) => match decoder.read(out) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                decoded => decoded.map_err(|_| ()),
            },
            DecoderState::Zstd { context, input, is_between_frames } => {
                decode_zstd(context, input, is_between_frames, out)
            }
        };
        decoded.map_err(|()| {
            let detail = format!(
                "The body is not a complete {} stream, or has other bytes after it.",
                self.coding.name()
            );
            let title = "The body cannot be decompressed.";
            Problem::new(StatusCode::BAD_REQUEST, tag::INVALID_INPUT, title, detail)
        })
    }
}

fn decode_zstd(
    context: &mut DCtx<'_>,
    pending: &mut DecoderInput,
    is_between_frames: &mut bool,
    out: &mut [u8],
) -> Result<usize, ()> {
    let mut output = OutBuffer::around(out);
    while output.pos() == 0 {
        let mut input = InBuffer::around(&pending.bytes);
        // Called without input as well: the decoder may hold output that did not fit before.
        let size_hint = context.decompress_stream(&mut output, &mut input).map_err(|_| ())?;
        let consumed = input.pos();
        pending.bytes.advance(consumed);
        if consumed > 0 || output.pos() > 0 {
            *is_between_frames = size_hint == 0;
        }
        if pending.bytes.is_empty() && output.pos() == 0 {
            return if pending.is_complete && !*is_between_frames { Err(()) } else { Ok(0) };
        }
    }
    Ok(output.pos())
}

/// Received bytes that wait for decompression.
#[derive(Default)]
struct DecoderInput {
    bytes: Bytes,
    /// True after the last bytes of the body.
    is_complete: bool,
}

impl io::Read for DecoderInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.len().min(out.len());
        self.bytes.copy_to_slice(&mut out[..length]);
        Ok(length)
    }
}

impl BufRead for DecoderInput {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // `WouldBlock` pauses the decoder: it keeps its state and continues with the next bytes.
        if self.bytes.is_empty() && !self.is_complete {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, length: usize) {
        self.bytes.advance(length);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 3).unwrap()
    }

    /// Decodes a body that comes in pieces.
    fn decode(coding: Coding, body: &[u8], piece: usize, step: usize) -> Result<Vec<u8>, Problem> {
        let mut decoder = Decoder::new(coding);
        let (mut decoded, mut out) = (Vec::new(), vec![0; step]);
        let pieces = body.chunks(piece).map(|piece| Some(Bytes::copy_from_slice(piece)));
        for bytes in pieces.chain([None]) {
            decoder.receive(bytes);
            loop {
                match decoder.decode(&mut out)? {
                    0 => break,
                    length => decoded.extend_from_slice(&out[..length]),
                }
            }
        }
        Ok(decoded)
    }

    proptest! {
        #[test]
        fn bodies_are_decoded_in_any_pieces(
            text in prop::collection::vec(0..4_u8, 0..3_000), piece in 1..400_usize, step in 1..400_usize,
        ) {
            for (coding, body) in [(Coding::Gzip, gzip(&text)), (Coding::Zstd, zstd(&text))] {
                prop_assert_eq!(&decode(coding, &body, piece, step).unwrap(), &text, "{:?}", coding);
                let twice = [&*body, &*body].concat();
                let both = [&*text, &*text].concat();
                prop_assert_eq!(&decode(coding, &twice, piece, step).unwrap(), &both, "{:?}", coding);
                let cut = &body[..body.len() - 1];
                prop_assert!(decode(coding, cut, piece, step).is_err(), "{:?}", coding);
                let more = [&*body, b"xyz"].concat();
                prop_assert!(decode(coding, &more, piece, step).is_err(), "{:?}", coding);
            }
        }
    }

    #[test]
    fn empty_body_is_not_a_stream() {
        assert!(decode(Coding::Gzip, b"", 1, 10).is_err());
        assert!(decode(Coding::Zstd, b"", 1, 10).is_err());
    }

    #[test]
    fn one_coding_is_accepted_in_any_case() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            Coding::from_headers(&headers)
        };
        for (values, coding) in [
            (&[][..], None),
            (&["identity"], None),
            (&["GZIP"], Some(Coding::Gzip)),
            (&["identity, x-gzip"], Some(Coding::Gzip)),
            (&["zstd"], Some(Coding::Zstd)),
        ] {
            assert_eq!(of(values).unwrap(), coding, "{values:?}");
        }
        for values in [&["br"][..], &["gzip, zstd"], &["gzip", "gzip"], &["deflate"]] {
            let problem = of(values).unwrap_err();
            assert_eq!(problem.status, 415, "{values:?}");
        }
    }
}
