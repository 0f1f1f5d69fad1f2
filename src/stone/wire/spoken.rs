//! Both ends of a stone's socket, as tests speak and hear on them.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{LENGTH_BYTES, frame_length, put_frame, take_frame};

/// A message as a frame.
pub(crate) fn framed<M: Serialize>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, message).unwrap();
    bytes
}

pub(crate) fn say<M: Serialize>(stream: &mut UnixStream, message: &M) {
    stream.write_all(&framed(message)).unwrap();
}

/// The next message, and no byte of what comes behind it.
pub(crate) fn hear<M: DeserializeOwned>(stream: &mut UnixStream) -> M {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).unwrap();
    let mut frame = length.to_vec();
    frame.resize(LENGTH_BYTES + frame_length(length).unwrap(), 0);
    stream.read_exact(&mut frame[LENGTH_BYTES..]).unwrap();
    take_frame(&frame).unwrap().unwrap().0
}
