//! A2: whose answers a stone keeps.

use std::collections::{BTreeSet, HashSet};

use crate::{
    codec,
    engine::{RowSet, Rows},
    error::Result,
    stone::{
        entry::{Entry, Origin},
        window::Window,
    },
    store::{
        change::ClientId,
        conflict::Version,
        keys,
        verdict::{CLIENTS_MAX, HorizonRecord},
        view::{for_each, get_record},
    },
};

/// The clients that have rows, the oldest first.
pub(super) struct Clients {
    kept: BTreeSet<(u64, u64)>,
}

impl Clients {
    pub(super) fn read(rows: &dyn Rows) -> Result<Self> {
        let mut kept = BTreeSet::new();
        for_each(rows, &keys::clients(), |key, _| {
            kept.extend(keys::client_of(key).map(name));
            Ok(())
        })?;
        Ok(Self { kept })
    }

    /// Takes note of the clients whose answers are in a group's rows, and drops the oldest where there are too many.
    /// Who is connected may ask again, and is kept.
    pub(super) fn admit<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry>,
        rows: &mut RowSet,
        before: &dyn Rows,
        connected: impl FnOnce() -> HashSet<ClientId>,
    ) -> Result<()> {
        for entry in entries.filter(|entry| matches!(entry.origin, Origin::Client { .. })) {
            let client = entry.change.id.client;
            if rows.contains_key(&keys::client(client)) {
                self.kept.insert(name(client));
            }
        }
        // In a commit only: rows that no version counts have no place in the log.
        if rows.is_empty() || self.kept.len() <= CLIENTS_MAX {
            return Ok(());
        }
        let connected: HashSet<(u64, u64)> = connected().into_iter().map(name).collect();
        let surplus = self.kept.len() - CLIENTS_MAX;
        let dropped: Vec<_> =
            self.kept.iter().filter(|client| !connected.contains(client)).take(surplus).copied().collect();
        let Some((youngest, _)) = dropped.last() else { return Ok(()) };
        let known: HorizonRecord = get_record(before, keys::CLIENT_HORIZON)?.unwrap_or_default();
        let horizon = HorizonRecord { born: known.born.max(Version(youngest + 1)) };
        rows.insert(keys::CLIENT_HORIZON.to_vec(), Some(codec::encode(&horizon)?));
        for (born, random) in dropped {
            self.kept.remove(&(born, random));
            rows.insert(keys::client(ClientId { born: Version(born), random }), None);
        }
        Ok(())
    }

    /// Forgets a client that has left. Its row may go with whatever is written next: one that stays harms nobody.
    pub(super) fn forget(&mut self, client: ClientId, window: &mut Window) {
        // Of most there is none, and nothing may be written for a long time.
        if self.kept.remove(&name(client)) {
            window.put(keys::client(client), None);
        }
    }
}

fn name(client: ClientId) -> (u64, u64) {
    (client.born.0, client.random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::memory::Memory,
        store::{
            change::{Change, ChangeId},
            conflict::Writer,
            site::Site,
        },
    };

    fn client(born: u64) -> ClientId {
        ClientId { born: Version(born), random: 7 }
    }

    /// A group with an answer for that client.
    fn group(client: ClientId) -> (Entry, RowSet) {
        let id = ChangeId { client, number: 1 };
        let change = Change { id, writer: Writer::default(), guards: Vec::new(), intents: Vec::new() };
        let origin = Origin::Client { connection: 2, number: 1 };
        let rows = RowSet::from([(keys::client(client), Some(vec![1]))]);
        (Entry { origin, change, asked: None, wait_until: None }, rows)
    }

    #[test]
    fn oldest_client_that_is_not_connected_makes_room() {
        let born = 100..100 + CLIENTS_MAX as u64;
        let mut clients = Clients { kept: born.map(|born| name(client(born))).collect() };
        let site = Site::in_memory(Box::new(Memory::new()));
        let mut admit = |newest: u64, known: &dyn Rows| {
            let (entry, mut rows) = group(client(newest));
            clients.admit([&entry].into_iter(), &mut rows, known, || [100, 101, 103].map(client).into()).unwrap();
            assert_eq!(clients.kept.len(), CLIENTS_MAX);
            rows
        };
        let horizon = |rows: &RowSet| {
            let bytes = rows.get(keys::CLIENT_HORIZON).unwrap().as_ref().unwrap();
            codec::decode::<HorizonRecord>(bytes).unwrap().born.0
        };
        let rows = admit(1_000_000, &*site.engine.latest().unwrap());
        assert_eq!((rows.get(&keys::client(client(102))), horizon(&rows)), (Some(&None), 103));
        site.engine.write(None, &rows).unwrap();
        // One that comes late and was born before the horizon does not bring it back.
        let rows = admit(50, &*site.engine.latest().unwrap());
        assert_eq!((rows.get(&keys::client(client(50))), horizon(&rows)), (Some(&None), 103));
        let rows = admit(1_000_001, &*site.engine.latest().unwrap());
        assert_eq!((rows.get(&keys::client(client(104))), horizon(&rows)), (Some(&None), 105));
    }

    #[test]
    fn client_that_leaves_without_a_row_leaves_nothing_to_write() {
        let site = Site::in_memory(Box::new(Memory::new()));
        let mut window = Window::open(&site).unwrap();
        let mut clients = Clients { kept: [name(client(1))].into() };
        clients.forget(client(2), &mut window);
        assert_eq!(window.take_strays(), RowSet::new());
        clients.forget(client(1), &mut window);
        clients.forget(client(1), &mut window);
        assert_eq!(window.take_strays(), RowSet::from([(keys::client(client(1)), None)]));
    }
}
