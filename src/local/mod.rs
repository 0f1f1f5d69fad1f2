//! The files beside a store.
