pub(crate) mod id;
