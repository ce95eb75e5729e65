//! A port of 127.0.0.1 whose connections are neither accepted nor refused, as behind a network that drops packets.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};

/// A port at which the system leaves new connections unanswered, because its queue is full.
#[derive(Debug)]
pub struct UnreachableListener {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl UnreachableListener {
    /// Opens the port, on the current runtime.
    ///
    /// # Panics
    ///
    /// If the system answers all connections.
    #[must_use]
    pub fn open() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let listener = socket.listen(0).expect("it is bound");
        let address = listener.local_addr().expect("it is bound");
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            queued.push(stream);
            assert!(queued.len() < 100, "the queue of connections has no limit");
        }
        Self { address, _listener: listener, _queued: queued }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
