//! Runs a decoder of the `image` crate within the bounds that our own reading of the header allows.

use image::{DynamicImage, ImageDecoder, ImageError, ImageResult, Limits};

use super::{DecodeError, header::Header};

/// Decodes at most `header`'s size and `memory` bytes. A decoder that reads another size from the file fails.
pub(super) fn decode(
    mut decoder: impl ImageDecoder,
    header: &Header,
    memory: u64,
) -> ImageResult<DynamicImage> {
    let mut limits = Limits::no_limits();
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
