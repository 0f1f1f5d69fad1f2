//! How a log is kept here: nearly all of it is zeros, so there is only of each block that holds something else its
//! number and its bytes.
#![allow(dead_code, reason = "each user has need of a part of it")]

const BLOCK_BYTES: usize = 4 << 10;
/// A log's size from the first.
const LOG_BYTES: usize = (16 << 20) + BLOCK_BYTES;

/// A log as it is kept.
pub fn gathered(log: &[u8]) -> Vec<u8> {
    let blocks = log.chunks(BLOCK_BYTES).zip(0_u32..).filter(|(block, _)| block.iter().any(|byte| *byte != 0));
    blocks.flat_map(|(block, number)| [&number.to_le_bytes(), block].concat()).collect()
}

/// The log of which this was kept.
pub fn spread(blocks: &[u8]) -> Vec<u8> {
    let mut log = vec![0; LOG_BYTES];
    for block in blocks.chunks(4 + BLOCK_BYTES) {
        let (number, bytes) = block.split_at(4);
        let at = u32::from_le_bytes(number.try_into().unwrap()) as usize * BLOCK_BYTES;
        log[at..at + bytes.len()].copy_from_slice(bytes);
    }
    log
}
