//! The bytes of files, in pages that images share until one of them writes to them: a disk is cheap to copy.

use std::{collections::BTreeMap, sync::Arc};

use super::trace::{Piece, What};

const PAGE: usize = 4096;

/// Files by name.
#[derive(Clone, Default)]
pub(crate) struct Image(BTreeMap<Arc<str>, Bytes>);

#[derive(Clone, Default)]
pub(crate) struct Bytes {
    len: usize,
    pages: Vec<Arc<[u8; PAGE]>>,
    /// Whether a power cut leaves the file in its folder.
    pub(super) is_in_folder: bool,
}

impl Image {
    /// A disk with this file.
    pub(crate) fn with(mut self, name: &str, bytes: &[u8]) -> Self {
        let file = self.0.entry(name.into()).or_insert(Bytes { is_in_folder: true, ..Bytes::default() });
        file.write(0, bytes);
        self
    }

    pub(crate) fn file(&self, name: &str) -> Option<&Bytes> {
        self.0.get(name)
    }

    pub(crate) fn apply(&mut self, piece: &Piece) {
        let file = match &piece.what {
            What::Made => {
                self.0.entry(piece.file.clone()).or_default();
                return;
            }
            _ => self.0.entry(piece.file.clone()).or_default(),
        };
        match &piece.what {
            What::Write(at, bytes) => file.write(*at, bytes),
            What::Length(len) => file.set_len(*len),
            What::Made => {}
        }
    }

    pub(super) fn note_in_folder(&mut self, name: Option<&str>) {
        for (_, file) in self.0.iter_mut().filter(|(file, _)| name.is_none_or(|name| &***file == name)) {
            file.is_in_folder = true;
        }
    }

    pub(super) fn forget_nameless(&mut self) {
        self.0.retain(|_, file| file.is_in_folder);
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads what there is from here on; gives how much that is.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let count = self.len.saturating_sub(offset).min(buffer.len());
        let mut done = 0;
        while done < count {
            let (page, from) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let more = (PAGE - from).min(count - done);
            buffer[done..done + more].copy_from_slice(&self.pages[page][from..from + more]);
            done += more;
        }
        count
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(&mut bytes, 0);
        bytes
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if offset + bytes.len() > self.len {
            self.set_len(offset + bytes.len());
        }
        let mut done = 0;
        while done < bytes.len() {
            let (page, from) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let more = (PAGE - from).min(bytes.len() - done);
            let page = Arc::make_mut(&mut self.pages[page]);
            page[from..from + more].copy_from_slice(&bytes[done..done + more]);
            done += more;
        }
    }

    fn set_len(&mut self, len: usize) {
        if len < self.len && !len.is_multiple_of(PAGE) {
            Arc::make_mut(&mut self.pages[len / PAGE])[len % PAGE..].fill(0);
        }
        let count = len.div_ceil(PAGE);
        if count > self.pages.len() {
            let zeros = Arc::new([0; PAGE]);
            self.pages.resize(count, zeros);
        }
        self.pages.truncate(count);
        self.len = len;
    }
}
