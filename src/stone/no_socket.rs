//! In place of `socket`, where the system has no local sockets that are a file of one user's alone: nobody is the stone
//! there, and all commit directly.
//!
//! The types stand in for those of local sockets, so that all else is the same everywhere; none of them is ever made.

use std::{
    io,
    path::{Path, PathBuf},
};

pub(super) use mio::net::{TcpListener as Listener, TcpStream as Accepted};
use mio::{Interest, Registry, Token};

use crate::{
    error::{Error, Result},
    store::site::Files,
};

/// A client's end of a connection.
pub(crate) type Stream = std::net::TcpStream;

pub(super) fn path(_: &Files) -> Result<PathBuf> {
    Err(no_sockets())
}

pub(super) fn connect(_: &Path, _: &Path) -> Option<Stream> {
    None
}

pub(super) fn bind(_: &Path, _: &Path) -> Result<Listener> {
    Err(no_sockets())
}

pub(super) fn watch(_: &Registry, _: &Accepted, _: Token, _: Interest) -> io::Result<()> {
    Ok(())
}

pub(super) fn unwatch(_: &Registry, _: &Accepted) -> io::Result<()> {
    Ok(())
}

pub(super) fn unlink(_: &Path) {}

fn no_sockets() -> Error {
    Error::unavailable("this system has no local sockets, so no process commits for others; let each commit directly")
}
