//! Checking a store.
