//! Digest of a JSON value, independent of key order, white space and escapes. Numbers are hashed as text: `1` and `1.0`
//! differ.

use sha2::{Digest, Sha256};

use super::{Kind, Node};

impl Node<'_> {
    /// SHA-256 of the value with the keys of every object sorted.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        feed(*self, &mut hash);
        hash.finalize().into()
    }
}

/// Hashes one value. The kind and the length before each part keep different values from hashing the same bytes.
fn feed(node: Node<'_>, hash: &mut Sha256) {
    let part = |hash: &mut Sha256, kind: u8, text: &[u8]| {
        hash.update([kind]);
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    let count = |hash: &mut Sha256, kind: u8, members: usize| {
        hash.update([kind]);
        hash.update((members as u64).to_be_bytes());
    };
    match node.kind() {
        Kind::Null | Kind::Bool(_) => part(hash, b'w', node.raw()),
        Kind::Number => part(hash, b'n', node.raw()),
        Kind::String => part(hash, b's', node.unquoted().as_bytes()),
        Kind::Array => {
            count(hash, b'a', node.elements().count());
            for element in node.elements() {
                feed(element, hash);
            }
        }
        Kind::Object => {
            let mut entries: Vec<_> = node.entries().collect();
            // Clients that repeat a request may serialize its keys in another order.
            entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            count(hash, b'o', entries.len());
            for (key, value) in entries {
                part(hash, b'k', key.as_bytes());
                feed(value, hash);
            }
        }
    }
}
