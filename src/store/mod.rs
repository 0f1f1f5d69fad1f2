pub(crate) mod conflict;
