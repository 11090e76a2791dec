//! Files of bank entries through the public interface.

mod fuzzed;
