//! Reads integers at an offset of a byte slice; `None` beyond its end.

pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

pub(super) fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    let three: [u8; 3] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes([three[0], three[1], three[2], 0]))
}
