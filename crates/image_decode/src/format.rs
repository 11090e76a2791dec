//! Formats of pictures that can be decoded.

use tidegate_schemas::string_enum;

string_enum! {
    /// Supported formats, detected from the first bytes of a file.
    pub enum Format {
        Jpeg = "jpeg",
        Png = "png",
        Gif = "gif",
        WebP = "webp",
        Bmp = "bmp",
        Tiff = "tiff",
    }
}
