//! Turns bytes into hashes, and hashes into matches with banks.
//!
//! It fetches nothing and stores nothing. Nothing is here yet: items keep their media addresses, unfetched.
