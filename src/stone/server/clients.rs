//! A2: whose answers a stone keeps.

use std::collections::BTreeSet;

use crate::{
    codec,
    engine::RowSet,
    error::Result,
    stone::entry::{Entry, Origin},
    store::{
        change::ClientId,
        conflict::Version,
        keys,
        verdict::{CLIENTS_MAX, HorizonRecord},
    },
};

/// Keeps the answers of the newest clients only.
pub(super) fn admit_clients<'a>(
    clients: &mut BTreeSet<(u64, u64)>,
    entries: impl Iterator<Item = &'a Entry>,
    rows: &mut RowSet,
) -> Result<()> {
    for entry in entries.filter(|entry| matches!(entry.origin, Origin::Client { .. })) {
        let client = entry.change.id.client;
        if rows.contains_key(&keys::client(client)) {
            clients.insert((client.born.0, client.random));
        }
    }
    // In a commit only: rows that no version counts have no place in the log.
    while !rows.is_empty() && clients.len() > CLIENTS_MAX {
        let Some((born, random)) = clients.pop_first() else { break };
        let born = Version(born);
        rows.insert(keys::client(ClientId { born, random }), None);
        let horizon = HorizonRecord { born: Version(born.0 + 1) };
        rows.insert(keys::CLIENT_HORIZON.to_vec(), Some(codec::encode(&horizon)?));
    }
    Ok(())
}
