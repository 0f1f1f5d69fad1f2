//! Who is told what: answers that stand at once, and where those go that wait for a sync.

use super::{Stone, sealer::Addressee};
use crate::{
    error::{Error, Result},
    stone::{
        candidate::News,
        entry::{Closer, Entry, Origin},
        wire::Refusal,
    },
    store::change::Applied,
};

impl Stone<'_> {
    pub(super) fn tell_closer(&mut self, closer: Closer, answer: Result<()>) {
        match closer {
            Closer::Own(promise) => promise.keep(answer),
            Closer::Client { connection, ask } | Closer::Borrower { connection, ask } => {
                self.connections.answer_ask(connection, ask, answer.map_err(Refusal::from));
            }
            Closer::Holders => {
                self.connections.call_holders();
                (self.ground.on_news)(News::HoldersCalled);
            }
        }
    }

    pub(super) fn refuse(&mut self, entries: Vec<Entry>, error: &Error) {
        for entry in entries {
            self.answer(entry.origin, Err(error.for_each_caller()));
        }
    }

    fn answer(&mut self, origin: Origin, answer: Result<Applied>) {
        match origin {
            Origin::Own(replier) => replier.answer(answer),
            Origin::Client { connection, number } => {
                self.connections.answer(connection, number, answer.map_err(Refusal::from));
            }
        }
    }

    pub(super) fn addressee(&self, origin: Origin) -> Addressee {
        match origin {
            Origin::Own(replier) => Addressee::Own(replier),
            Origin::Client { connection, number } => match self.connections.line(connection) {
                Some(line) => Addressee::Client { connection, line, number },
                None => Addressee::Gone,
            },
        }
    }
}
