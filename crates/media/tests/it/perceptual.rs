//! Gradient and median hashes of drawn pictures against golden values: a change of resizing or hashing needs a new
//! pipeline. They equal those of `image_hasher`'s own resizer, as 3,000 pictures of noise and shapes did.

#![allow(clippy::unwrap_used)]

use tidegate_media::Digests;
use tidegate_schemas::hex::hex;

use crate::support::{
    fingerprints::print,
    pictures::{self, FAMILIES},
};

/// Sizes around the sizes of the hashes, narrow ones, and usual ones.
const SIZES: [(u32, u32); 8] =
    [(9, 8), (32, 32), (33, 31), (17, 400), (1_201, 20), (240, 180), (413, 299), (1_280, 853)];

/// A drawn picture as a gray PNG, so that its luma reaches the hashes unchanged.
fn gray_png(family: u64, seed: u64, (width, height): (u32, u32)) -> Vec<u8> {
    let picture = pictures::sized(family, seed, width, height);
    let gray = image::GrayImage::from_raw(width, height, picture.luma()).unwrap();
    pictures::encoded(&gray.into(), image::ImageFormat::Png)
}

#[test]
fn resized_luma_gives_the_hashes_of_pipeline_9() {
    let mut all = Vec::new();
    for family in 0..FAMILIES {
        for (seed, size) in (0..).zip(SIZES) {
            let print = print(&gray_png(family, seed, size));
            all.extend(print.gradient8.unwrap());
            all.extend(print.dct16.unwrap());
        }
    }
    assert_eq!(hex(&all[..8]), "9e22b7563ae15798");
    assert_eq!(hex(&all[8..40]), "c98b7c8199d18cb1dbc1b056547e4a89e79db506a901eff398b4bf979b1f8080");
    assert_eq!(
        hex(&Digests::of(&all).sha256),
        "6ed8fed3f57dd3e29c0354fea4de2b281484a5684fe030a420e3535cb02e7031"
    );
}
