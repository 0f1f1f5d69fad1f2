//! beanstalkd with its binlog, over its own protocol, on a socket of the machine.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    server::Server,
};

pub struct Beanstalkd {
    /// `-f0`; else `-f50`, its default.
    pub syncs_each: bool,
}

impl Peer for Beanstalkd {
    fn name(&self) -> &'static str {
        if self.syncs_each { "beanstalkd -b -f0" } else { "beanstalkd -b -f50 (default)" }
    }

    fn durability(&self) -> &'static str {
        if self.syncs_each {
            "enqueue and completion synced at the answer; claims are never written, and a job may start before its sync"
        } else {
            "synced at most every 50 ms"
        }
    }

    fn is_durable(&self) -> bool {
        self.syncs_each
    }

    fn program(&self) -> Option<&'static str> {
        Some("beanstalkd")
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let binlog = folder.join("binlog");
        fs::create_dir(&binlog).expect("the folder is writable");
        let socket = folder.join("beanstalkd.sock");
        let address = socket.to_str().expect("a path of text").to_owned();
        let (binlog, listen) = (binlog.to_str().expect("a path of text"), format!("unix:{address}"));
        let interval = if self.syncs_each { "-f0" } else { "-f50" };
        let command = ["beanstalkd", "-b", binlog, interval, "-l", &listen];
        let mut server = Server::start(&command, folder, "TERM");
        server.wait_for(|| UnixStream::connect(&socket));
        Running { address, server: Some(server) }
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        (0..count).map(|_| Box::new(Connection::open(address)) as Box<dyn Client>).collect()
    }
}

struct Connection {
    input: BufReader<UnixStream>,
    in_hand: Vec<u64>,
}

impl Connection {
    fn open(address: &str) -> Self {
        let stream = UnixStream::connect(address).expect("beanstalkd listens");
        Self { input: BufReader::new(stream), in_hand: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.get_mut().write_all(bytes).expect("beanstalkd reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.input.read_line(&mut line).expect("beanstalkd answers");
        line.trim_end().to_owned()
    }

    fn body(&mut self, bytes: usize) -> Vec<u8> {
        // Each body has a line's end behind it.
        let mut body = vec![0; bytes + 2];
        self.input.read_exact(&mut body).expect("beanstalkd sends what it announced");
        body.truncate(bytes);
        body
    }

    fn expect(&mut self, answer: &str) {
        let line = self.line();
        assert!(line.starts_with(answer), "beanstalkd answers {line:?}, not {answer}");
    }

    fn deletes(&self) -> String {
        self.in_hand.iter().fold(String::new(), |mut text, id| {
            write!(text, "delete {id}\r\n").expect("a string takes all");
            text
        })
    }

    fn read_deleted(&mut self) {
        for _ in 0..std::mem::take(&mut self.in_hand).len() {
            self.expect("DELETED");
        }
    }

    fn read_reserved(&mut self, jobs: usize, handle: &mut dyn FnMut(&[u8])) -> usize {
        for _ in 0..jobs {
            let line = self.line();
            let mut words = line.split(' ');
            match words.next() {
                Some("RESERVED") => {
                    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("two numbers");
                    let (id, bytes) = (number(), number());
                    let body = self.body(usize::try_from(bytes).expect("a small number"));
                    handle(&body);
                    self.in_hand.push(id);
                }
                Some("TIMED_OUT") => {}
                _ => panic!("beanstalkd answers {line:?} to a reserve"),
            }
        }
        self.in_hand.len()
    }
}

/// The first waits, in whole seconds, and those behind it take what there is.
fn reserves(jobs: usize, wait: Duration) -> String {
    let first = format!("reserve-with-timeout {}\r\n", if wait.is_zero() { 0 } else { wait.as_secs().max(1) });
    first + &"reserve-with-timeout 0\r\n".repeat(jobs - 1)
}

impl Client for Connection {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let mut put = format!("put 0 0 120 {}\r\n", payload.len()).into_bytes();
        put.extend_from_slice(payload);
        put.extend_from_slice(b"\r\n");
        self.send(&put.repeat(jobs));
        for _ in 0..jobs {
            self.expect("INSERTED");
        }
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        self.send(reserves(jobs, wait).as_bytes());
        self.read_reserved(jobs, handle)
    }

    fn complete(&mut self) {
        let deletes = self.deletes();
        self.send(deletes.as_bytes());
        self.read_deleted();
    }

    fn turn(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let both = self.deletes() + &reserves(jobs, wait);
        self.send(both.as_bytes());
        self.read_deleted();
        self.read_reserved(jobs, handle)
    }

    fn left(&mut self) -> u64 {
        self.send(b"stats-tube default\r\n");
        let line = self.line();
        let bytes = line.strip_prefix("OK ").and_then(|bytes| bytes.parse().ok()).expect("beanstalkd has figures");
        let text = String::from_utf8(self.body(bytes)).expect("the figures are text");
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|figure| figure.parse::<u64>().ok()).expect("the figure is there")
        };
        figure("current-jobs-ready") + figure("current-jobs-reserved")
    }
}
