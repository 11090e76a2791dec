//! Runs a decoder of the `image` crate within the limits of an already checked header.

use image::{DynamicImage, ImageDecoder, ImageError, ImageResult, Limits};

use super::{DecodeError, header::Header};

/// Decodes a picture of at most the size in `header` with at most `memory` bytes. A decoder that reads a larger size fails.
pub(super) fn decode(
    mut decoder: impl ImageDecoder,
    header: &Header,
    memory: u64,
) -> ImageResult<DynamicImage> {
    let mut limits = Limits::no_limits();
    // The header and the decoder read the size separately; a hostile file could make them differ.
    limits.max_image_width = Some(header.width);
    limits.max_image_height = Some(header.height);
    limits.max_alloc = Some(memory);
    decoder.set_limits(limits)?;
    DynamicImage::from_decoder(decoder)
}

impl From<ImageError> for DecodeError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Limits(_) => Self::OUT_OF_MEMORY,
            ImageError::Unsupported(_) => Self::UNSUPPORTED,
            _ => Self::BROKEN,
        }
    }
}
