//! NATS JetStream: a work-queue stream, a pull consumer, explicit acknowledgements that are answered, over the text
//! protocol of NATS.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    server::{Server, free_port},
};

const STREAM: &str = "JOBS";
const SUBJECT: &str = "jobs";
const CONSUMER: &str = "WORKERS";
/// Where jobs are acknowledged.
const ACKS: &str = "$JS.ACK.";
/// More jobs than all workers together have in hand.
const ACKS_PENDING_MAX: u32 = 20_000;
/// How long a pull waits at the server. One that ran out is not always told, so its client must not wait for ever; and
/// one that runs out in a stall of the disk would be lost time, so it is long.
const PULL: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(6);

pub struct Nats;

impl Peer for Nats {
    fn name(&self) -> &'static str {
        "NATS JetStream (default)"
    }

    fn durability(&self) -> &'static str {
        "synced every two minutes"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn program(&self) -> Option<&'static str> {
        Some("nats-server")
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let (address, data) = (format!("127.0.0.1:{}", free_port()), folder.join("jetstream"));
        let port = address.rsplit(':').next().expect("an address has a port");
        let data = data.to_str().expect("a path of text");
        let command = ["nats-server", "-a", "127.0.0.1", "-p", port, "-js", "-sd", data];
        let mut server = Server::start(&command, folder, "TERM");
        let mut connection = server.wait_for(|| Connection::open(&address));
        let stream = json!({ "name": STREAM, "subjects": [SUBJECT], "retention": "workqueue", "storage": "file" });
        // The server listens a moment before JetStream does.
        server.wait_for(|| connection.ask(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &stream));
        let config = json!({ "durable_name": CONSUMER, "ack_policy": "explicit", "max_ack_pending": ACKS_PENDING_MAX });
        let consumer = json!({ "stream_name": STREAM, "config": config });
        let made = connection.ask(&format!("$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}"), &consumer);
        made.expect("JetStream makes a consumer");
        Running { address, server: Some(server) }
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        let open = |_| Box::new(Connection::open(address).expect("NATS listens")) as Box<dyn Client>;
        (0..count).map(open).collect()
    }
}

struct Connection {
    input: BufReader<TcpStream>,
    inbox: String,
    /// Each request has an inbox of its own, so that a late answer is not taken for another's.
    number: u64,
    /// The subjects that acknowledge what is in hand.
    in_hand: Vec<String>,
}

struct Message {
    subject: String,
    reply: String,
    /// What the server says in place of a job.
    is_status: bool,
    body: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let inbox = format!("_INBOX.{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut connection = Self { input: BufReader::new(stream), inbox, number: 0, in_hand: Vec::new() };
        let options = json!({ "verbose": false, "pedantic": false, "headers": true, "no_responders": true });
        let subscribe = format!("CONNECT {options}\r\nSUB {}.* 1\r\n", connection.inbox);
        connection.input.get_mut().write_all(subscribe.as_bytes())?;
        Ok(connection)
    }

    fn next_inbox(&mut self) -> String {
        self.number += 1;
        format!("{}.{}", self.inbox, self.number)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.get_mut().write_all(bytes).expect("NATS reads");
    }

    /// A request of JetStream's API.
    fn ask(&mut self, subject: &str, body: &Value) -> Result<Value, String> {
        let inbox = self.next_inbox();
        self.send(&published(subject, &inbox, body.to_string().as_bytes()));
        let answer = self.message(&inbox);
        let value: Value = serde_json::from_slice(&answer.body).map_err(|_| "JetStream does not answer".to_owned())?;
        if value["error"].is_null() { Ok(value) } else { Err(value["error"].to_string()) }
    }

    /// The next message for this inbox; what is for earlier ones came too late.
    fn message(&mut self, inbox: &str) -> Message {
        loop {
            let message = self.read();
            if message.subject == inbox {
                return message;
            }
        }
    }

    fn acknowledgements(&mut self, inbox: &str) -> (Vec<u8>, usize) {
        let in_hand = std::mem::take(&mut self.in_hand);
        (in_hand.iter().flat_map(|reply| published(reply, inbox, b"+ACK")).collect(), in_hand.len())
    }

    /// Reads the answers to so many acknowledgements, and up to so many jobs that were pulled, in whatever order.
    fn read_turn(
        &mut self,
        acknowledged: &str,
        mut acknowledgements: usize,
        pulled: &str,
        jobs: usize,
        handle: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let mut is_pulled = jobs == 0;
        while acknowledgements > 0 || !is_pulled {
            if acknowledgements == 0 && self.input.fill_buf().is_err() {
                break;
            }
            let message = self.read();
            // A job keeps the subject that it was published under; it is told by where it is to be acknowledged.
            if message.reply.starts_with(ACKS) {
                handle(&message.body);
                self.in_hand.push(message.reply);
            } else if message.subject == acknowledged {
                acknowledgements -= 1;
            }
            is_pulled |= self.in_hand.len() == jobs || (message.is_status && message.subject == pulled);
        }
        self.in_hand.len()
    }

    fn read(&mut self) -> Message {
        loop {
            let mut line = String::new();
            self.input.read_line(&mut line).expect("NATS answers");
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<usize>().expect("NATS tells lengths");
            match words[..] {
                ["PING"] => self.send(b"PONG\r\n"),
                ["MSG", subject, _, .., _] => {
                    let reply = if words.len() == 5 { words[3] } else { "" };
                    let body = self.body(0, number(words.len() - 1));
                    return Message { subject: subject.to_owned(), reply: reply.to_owned(), is_status: false, body };
                }
                ["HMSG", subject, ..] => {
                    let body = self.body(number(words.len() - 2), number(words.len() - 1));
                    // What carries headers here is a status: no job of ours has any.
                    return Message { subject: subject.to_owned(), reply: String::new(), is_status: true, body };
                }
                ["INFO", ..] | ["+OK" | "PONG"] => {}
                _ => panic!("NATS says {line:?}"),
            }
        }
    }

    /// A body, without its headers.
    fn body(&mut self, headers: usize, bytes: usize) -> Vec<u8> {
        let mut body = vec![0; bytes + 2];
        self.input.read_exact(&mut body).expect("NATS sends what it announced");
        body.truncate(bytes);
        body.split_off(headers)
    }
}

fn pull(inbox: &str, jobs: usize) -> Vec<u8> {
    let pull = json!({ "batch": jobs, "expires": u64::try_from(PULL.as_nanos()).expect("a short time") }).to_string();
    published(&format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"), inbox, pull.as_bytes())
}

fn published(subject: &str, reply: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("PUB {subject} {reply} {}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

impl Client for Connection {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let inbox = self.next_inbox();
        self.send(&published(SUBJECT, &inbox, payload).repeat(jobs));
        for _ in 0..jobs {
            let answer = self.message(&inbox);
            let text = String::from_utf8_lossy(&answer.body);
            assert!(text.contains("\"seq\"") && !text.contains("\"error\""), "JetStream answers {text:?}");
        }
    }

    fn claim(&mut self, jobs: usize, _: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let inbox = self.next_inbox();
        self.send(&pull(&inbox, jobs));
        self.read_turn("", 0, &inbox, jobs, handle)
    }

    fn complete(&mut self) {
        let inbox = self.next_inbox();
        let (acknowledgements, count) = self.acknowledgements(&inbox);
        self.send(&acknowledgements);
        self.read_turn(&inbox, count, "", 0, &mut |_| {});
    }

    fn turn(&mut self, jobs: usize, _: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let (inbox, pulled) = (self.next_inbox(), self.next_inbox());
        let (mut both, count) = self.acknowledgements(&inbox);
        both.extend(pull(&pulled, jobs));
        self.send(&both);
        self.read_turn(&inbox, count, &pulled, jobs, handle)
    }

    fn left(&mut self) -> u64 {
        let info = self.ask(&format!("$JS.API.STREAM.INFO.{STREAM}"), &json!({})).expect("JetStream has figures");
        info["state"]["messages"].as_u64().expect("JetStream counts")
    }
}
