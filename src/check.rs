//! Checking a store at rest: every invariant that can be read off its rows, and the engine's own structure.
