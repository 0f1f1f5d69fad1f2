pub(crate) mod apply;
pub(crate) mod change;
pub(crate) mod conflict;
pub(crate) mod keys;
pub(crate) mod object;
pub(crate) mod settings;
pub(crate) mod view;
