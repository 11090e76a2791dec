//! Decodes pictures of hostile origin to luma: JPEG, PNG, GIF, WebP, BMP and TIFF, within limits and one memory budget. Hashes of
//! the luma are in `tidegate-media`.

mod animation;
mod bmp;
mod budget;
mod canvas;
mod decode;
mod decode_error;
mod fallback;
mod format;
mod gif;
mod header;
mod image_decoder;
mod jpeg;
mod limits;
mod luma;
mod luma_image;
pub mod metrics;
mod parts_reader;
mod png;
mod read_int;
mod spliced_reader;
mod static_image;
mod tiff;
mod webp;

pub use self::{
    budget::MemoryBudget,
    decode::{ImageInfo, decode},
    decode_error::{DecodeError, Reason},
    format::Format,
    limits::DecodeLimits,
    luma_image::LumaImage,
};
