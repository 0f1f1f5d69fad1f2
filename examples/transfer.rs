//! Four processes move money between five accounts on the root, each transfer a transaction.
//!
//! ```text
//! cargo run --release --example transfer [STORE]
//! ```
//!
//! What to look at: a transaction reads both balances on one snapshot and commits only if nobody has written them
//! since; otherwise it runs again. So the processes conflict all the time, and no money appears or vanishes: the sum
//! holds at the end, and in each snapshot that the auditor takes meanwhile.

mod common;

use std::{
    env,
    error::Error,
    path::Path,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use casque::{ErrorKind, Store};

const ACCOUNTS: i64 = 5;
const OPENING_BALANCE: i64 = 100;
const TOTAL: i64 = ACCOUNTS * OPENING_BALANCE;
const PROCESSES: i64 = 4;
const TRANSFERS_EACH: i64 = 100;

fn main() -> ExitCode {
    common::run(include_str!("transfer.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("transfer.redb"))
        }
        [store] => play(Path::new(store)),
        ["teller", store] => be_teller(&Store::open(store)?),
        _ => Err("usage: transfer [STORE]".into()),
    })
}

/// Opens the accounts, starts the tellers, and audits until they are done.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::open(path)?;
    store.transaction(|tx| {
        for number in 0..ACCOUNTS {
            tx.put(&account(number), &OPENING_BALANCE)?;
        }
        tx.remove("conflicts")?;
        tx.remove("transfers")
    })?;

    let program = env::current_exe()?;
    let mut tellers = (0..PROCESSES)
        .map(|_| Command::new(&program).arg("teller").arg(path).spawn())
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    let (mut audits, mut wrong_audits) = (0, 0);
    let mut all_well = true;
    while !tellers.is_empty() {
        thread::sleep(Duration::from_millis(5));
        audits += 1;
        wrong_audits += i64::from(sum(&store)? != TOTAL);
        let mut at_work = Vec::new();
        for mut teller in tellers {
            match teller.try_wait()? {
                Some(status) => all_well &= status.success(),
                None => at_work.push(teller),
            }
        }
        tellers = at_work;
    }

    let conflicts: i64 = store.get("conflicts")?.unwrap_or(0);
    let transfers: i64 = store.get("transfers")?.unwrap_or(0);
    for account in store.list::<i64>("account/")? {
        println!("{}: {}", account.key, account.value);
    }
    println!("{PROCESSES} processes, {transfers} transfers, {conflicts} conflicts survived");
    println!("the accounts hold {} of {TOTAL}; {wrong_audits} of {audits} audits were wrong", sum(&store)?);
    all_well &= sum(&store)? == TOTAL && wrong_audits == 0 && transfers == PROCESSES * TRANSFERS_EACH;
    store.close()?;
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes transfers, and adds to the root how often they conflicted: adding never conflicts.
fn be_teller(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let mut tries = 0;
    for _ in 0..TRANSFERS_EACH {
        let from = fastrand::i64(0..ACCOUNTS);
        let to = (from + fastrand::i64(1..ACCOUNTS)) % ACCOUNTS;
        // A transaction gives up after a dozen conflicts; a teller does not.
        while let Err(error) = transfer(store, &account(from), &account(to), &mut tries) {
            if error.kind() != ErrorKind::Conflict {
                return Err(error.into());
            }
        }
    }
    store.add("transfers", TRANSFERS_EACH)?;
    store.add("conflicts", tries - TRANSFERS_EACH)?;
    store.clone().close()?;
    Ok(ExitCode::SUCCESS)
}

fn transfer(store: &Store, from: &str, to: &str, tries: &mut i64) -> casque::Result<()> {
    store.transaction(|tx| {
        *tries += 1;
        let (mine, yours): (i64, i64) = (tx.get(from)?.unwrap_or(0), tx.get(to)?.unwrap_or(0));
        let amount = fastrand::i64(0..=mine);
        tx.put(from, &(mine - amount))?;
        tx.put(to, &(yours + amount))
    })
}

fn sum(store: &Store) -> casque::Result<i64> {
    Ok(store.list::<i64>("account/")?.iter().map(|account| account.value).sum())
}

fn account(number: i64) -> String {
    format!("account/{number}")
}
