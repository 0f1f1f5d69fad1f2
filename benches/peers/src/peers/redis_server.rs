//! A Redis of our own, with its append-only file, on a socket of the machine.

use std::path::Path;

use redis::{Connection, RedisResult};

use crate::{peer::Running, server::Server};

pub const PROGRAM: &str = "redis-server";

pub fn start(folder: &Path, appendfsync: &str) -> Running {
    let socket = folder.join("redis.sock");
    let path = socket.to_str().expect("a path of text");
    let command = [
        PROGRAM,
        "--port",
        "0",
        "--unixsocket",
        path,
        "--appendonly",
        "yes",
        "--appendfsync",
        appendfsync,
        "--save",
        "",
    ];
    let mut server = Server::start(&command, folder, "KILL");
    let address = format!("redis+unix://{path}");
    server.wait_for(|| try_connect(&address).and_then(|mut connection| redis::cmd("PING").exec(&mut connection)));
    Running { address, server: Some(server) }
}

pub fn connect(address: &str) -> Connection {
    try_connect(address).expect("Redis listens")
}

fn try_connect(address: &str) -> RedisResult<Connection> {
    redis::Client::open(address)?.get_connection()
}
