//! Frames: whole or not yet there; what is neither is refused before it can take memory.

use proptest::prelude::*;

use super::*;
use crate::store::conflict::Version;

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        store: [7; 16],
        client: ClientId { born: Version(3), random: 4 },
        purpose: Purpose::Work,
        pid: 5,
        label: "tester".into(),
    }
}

#[test]
fn hello_and_welcome_keep_their_form_for_good() {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, &hello()).unwrap();
    let expected = [&[28, 0, 0, 0, 1][..], &[7; 16], &[3, 4, 0, 5, 6], b"tester"].concat();
    assert_eq!(bytes, expected);
    bytes.clear();
    put_frame(&mut bytes, &Welcome::Come { pid: 9 }).unwrap();
    assert_eq!(bytes, [2, 0, 0, 0, 0, 9]);
    bytes.clear();
    put_frame(&mut bytes, &Welcome::No { protocol: 2, store: [1; 16] }).unwrap();
    assert_eq!(bytes, [&[18, 0, 0, 0, 1, 2][..], &[1; 16]].concat());
}

#[test]
fn frame_is_taken_when_all_of_it_is_there() {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, &hello()).unwrap();
    for length in 0..bytes.len() {
        assert!(take_frame::<Hello>(&bytes[..length]).unwrap().is_none(), "{length} bytes");
    }
    let length = bytes.len();
    bytes.extend_from_slice(b"more");
    assert_eq!(take_frame::<Hello>(&bytes).unwrap(), Some((hello(), length)));
}

#[test]
fn length_that_lies_is_refused_at_once() {
    let error = take_frame::<Hello>(&u32::MAX.to_le_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("4294967295 bytes"), "{error}");
}

#[test]
fn message_that_leaves_bytes_over_is_refused() {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, &hello()).unwrap();
    bytes.push(0);
    bytes[0] += 1;
    assert_eq!(take_frame::<Hello>(&bytes).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn error_arrives_as_it_was_sent() {
    let conflict = Conflict {
        subject: crate::store::conflict::Subject::Key("k".into()),
        read: None,
        found: Some(Version(2)),
        by: None,
    };
    for error in [Error::of_conflict(conflict), Error::unavailable("the disk is full")] {
        let (kind, message) = (error.kind(), error.full_message());
        let arrived = Error::from(Refusal::from(error));
        assert_eq!((arrived.kind(), arrived.full_message()), (kind, message));
        assert_eq!(arrived.conflict().is_some(), kind == ErrorKind::Conflict);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(&body);
        match take_frame::<Request>(&bytes) {
            Ok(taken) => prop_assert_eq!(taken.map(|(_, length)| length), Some(bytes.len())),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Invalid),
        }
    }
}
