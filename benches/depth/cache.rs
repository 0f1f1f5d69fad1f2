//! How much of the file the stone had best keep in memory: each size in turn, at the deep store, and where jobs are
//! piled up in a new one, which fills the stone's memory soonest.

use crate::{
    Place,
    common::{Options, Report},
    rounds::{DOINGS, Site, fill, memory_line, rates_line},
};

const MEBIBYTES: [u64; 5] = [8, 16, 24, 32, 64];
const TURNS: usize = 5;
const PILE: u64 = 500_000;

pub fn measure(options: &Options, report: &mut Report, place: &Place) {
    let mut piled = MEBIBYTES.map(|_| Vec::new());
    let mut rates = MEBIBYTES.map(|_| Vec::new());
    let mut peaks = [None; MEBIBYTES.len()];
    for _ in 0..TURNS {
        for (index, mebibytes) in MEBIBYTES.iter().enumerate() {
            let cache = mebibytes.to_string();
            let folder = options.fresh_folder();
            let filled = fill(&folder.path().join("new.redb"), PILE.min(place.depth), &cache);
            piled[index].push([filled.rate; DOINGS.len()]);
            // A store has one stone at a time, so each comes anew.
            let mut site = Site::new(place, Some(&cache));
            rates[index].push(site.work(options.duration()));
            peaks[index] = peaks[index].max(filled.stone_peak).max(site.stone_peak());
            site.leave();
        }
    }
    for (index, mebibytes) in MEBIBYTES.iter().enumerate() {
        rates_line(report, &format!("pile up in a new store, {mebibytes} MiB"), &piled[index], 0);
        for (doing, name) in DOINGS.iter().enumerate() {
            rates_line(report, &format!("{name}, {mebibytes} MiB"), &rates[index], doing);
        }
        memory_line(report, &format!("the stone at its peak, {mebibytes} MiB"), peaks[index]);
    }
}
