//! What has happened on a disk, and every disk that a power cut at some moment of it might have left.

use std::{collections::HashSet, sync::Arc};

use super::image::Image;

/// What is written at once or not at all by a disk that keeps its word; by others, any byte.
pub(crate) const SECTOR: usize = 512;

/// All that happened, in order.
#[derive(Clone)]
pub(crate) struct Trace {
    /// What was durable before.
    pub(crate) base: Image,
    pub(crate) events: Vec<Event>,
}

#[derive(Clone)]
pub(crate) enum Event {
    /// Something was written that a power cut may take or leave.
    Piece(Piece),
    /// All pieces of this file that stand before this place among the events are durable.
    Synced {
        file: Arc<str>,
        upto: usize,
    },
    /// All files stay in their folder.
    FolderSynced,
    Note(usize),
}

#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) file: Arc<str>,
    pub(crate) what: What,
}

#[derive(Clone)]
pub(crate) enum What {
    /// The file itself.
    Made,
    Length(usize),
    Write(usize, Arc<[u8]>),
}

/// What a cut leaves of a piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kept {
    Nothing,
    Whole,
    /// The bytes of a write up to this one.
    Start(usize),
    /// The bytes of a write from this one on.
    End(usize),
}

/// A moment at which the power may go.
pub(crate) struct Cut {
    /// How many events were before.
    pub(crate) at: usize,
    durable: Image,
    /// What may be there or not.
    pub(crate) pending: Vec<Piece>,
}

impl Trace {
    /// Each moment just before something becomes durable, and the end: what may be on the disk at any other one, may be
    /// there at the next of these.
    pub(crate) fn cuts(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut platter = Platter::of(self.base.clone());
        for (at, event) in self.events.iter().enumerate() {
            if matches!(event, Event::Synced { .. } | Event::FolderSynced) {
                cuts.push(platter.cut(at));
            }
            platter.take(at, event);
        }
        cuts.push(platter.cut(self.events.len()));
        cuts
    }
}

/// What is durable, and what may be.
pub(super) struct Platter {
    durable: Image,
    /// With their places among the events.
    pending: Vec<(usize, Piece)>,
}

impl Platter {
    pub(super) fn of(durable: Image) -> Self {
        Self { durable, pending: Vec::new() }
    }

    /// Takes the next event.
    pub(super) fn take(&mut self, at: usize, event: &Event) {
        let durable = &mut self.durable;
        match event {
            Event::Piece(piece) => self.pending.push((at, piece.clone())),
            Event::Note(_) => {}
            Event::Synced { file, upto } => self.pending.retain(|(number, piece)| {
                let is_durable = piece.file == *file && number < upto && !matches!(piece.what, What::Made);
                if is_durable {
                    durable.apply(piece);
                }
                !is_durable
            }),
            Event::FolderSynced => {
                self.pending.retain(|(_, piece)| {
                    let is_made = matches!(piece.what, What::Made);
                    if is_made {
                        durable.apply(piece);
                    }
                    !is_made
                });
                durable.note_in_folder(None);
            }
        }
    }

    pub(super) fn cut(&self, at: usize) -> Cut {
        let pending = self.pending.iter().map(|(_, piece)| piece.clone()).collect();
        Cut { at, durable: self.durable.clone(), pending }
    }
}

impl Cut {
    /// What is on the disk when so much of each piece that was pending is kept.
    pub(crate) fn image(&self, kept: &[Kept]) -> Image {
        let mut image = self.durable.clone();
        for (piece, kept) in self.pending.iter().zip(kept) {
            match (&piece.what, kept) {
                (_, Kept::Nothing) => {}
                (What::Made, _) => {
                    image.apply(piece);
                    image.note_in_folder(Some(&piece.file));
                }
                (What::Write(at, bytes), Kept::Start(end)) => {
                    let what = What::Write(*at, bytes[..*end].into());
                    image.apply(&Piece { file: piece.file.clone(), what });
                }
                (What::Write(at, bytes), Kept::End(start)) => {
                    let what = What::Write(at + start, bytes[*start..].into());
                    image.apply(&Piece { file: piece.file.clone(), what });
                }
                _ => image.apply(piece),
            }
        }
        image.forget_nameless();
        image
    }

    /// What a cut may leave of the pieces: each subset of them where there are at most so many subsets, else as many of
    /// them as that, the first few always; and as many again with pieces that are torn.
    pub(crate) fn outcomes(&self, most: usize, chance: &mut impl FnMut() -> u64) -> Vec<Vec<Kept>> {
        let count = self.pending.len();
        let of = |is_kept: &dyn Fn(usize) -> bool| -> Vec<Kept> {
            (0..count).map(|index| if is_kept(index) { Kept::Whole } else { Kept::Nothing }).collect()
        };
        let mut outcomes = Vec::new();
        if count < usize::BITS as usize && 1 << count <= most {
            outcomes.extend((0..1_usize << count).map(|mask| of(&|index| mask >> index & 1 == 1)));
        } else {
            outcomes.push(of(&|_| false));
            outcomes.push(of(&|_| true));
            while outcomes.len() < most {
                let (mask, skew) = (chance(), chance() % 3);
                // Mostly kept, mostly lost, or half and half.
                let odds = [0x2000, 0x8000, 0xe000][usize::try_from(skew).unwrap_or(0)];
                let is_kept = |index: usize| mix(mask ^ index as u64) & 0xffff >= odds;
                outcomes.push(of(&is_kept));
            }
        }
        let whole = outcomes.len();
        for number in 0..whole {
            let mut torn = outcomes[number].clone();
            if self.tear(&mut torn, chance) {
                outcomes.push(torn);
            }
        }
        let mut seen = HashSet::new();
        outcomes.retain(|outcome| seen.insert(outcome.clone()));
        outcomes
    }

    /// Tears one write or two; whether there was any to tear.
    fn tear(&self, kept: &mut [Kept], chance: &mut impl FnMut() -> u64) -> bool {
        let writes: Vec<(usize, usize)> = self
            .pending
            .iter()
            .enumerate()
            .filter_map(|(index, piece)| match &piece.what {
                What::Write(_, bytes) if bytes.len() > 1 => Some((index, bytes.len())),
                _ => None,
            })
            .collect();
        if writes.is_empty() {
            return false;
        }
        let mut below = |bound: usize| usize::try_from(chance() % bound as u64).unwrap_or(0);
        for _ in 0..=below(2) {
            let (index, len) = writes[below(writes.len())];
            let any = 1 + below(len - 1);
            let sectors = any / SECTOR * SECTOR;
            // At a sector or anywhere, and what comes first need not be written first.
            let at = if below(2) == 0 && sectors > 0 { sectors } else { any };
            kept[index] = if below(2) == 0 { Kept::Start(at) } else { Kept::End(at) };
        }
        true
    }
}

/// The finalizer of `SplitMix64` (<https://prng.di.unimi.it/splitmix64.c>).
pub(crate) fn mix(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
