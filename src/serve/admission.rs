//! Admits new connections to a port at a limited rate, because each TLS handshake costs CPU time.
//!
//! Waiting connections are admitted round robin by source address. A flood from some addresses therefore delays a
//! client at another address, such as a kubelet, by at most one handshake per flooding address.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::net::{IpAddr, Ipv6Addr};

use cluster::limit::TokenBucket;

/// Admitted connections per second. With an RSA key of 4,096 bits, their handshakes take a quarter of a core.
const PER_SECOND: f32 = 50.0;
/// The number of connections that are admitted at once after a pause.
const BURST: u32 = 50;
/// The maximum number of waiting connections. At [`PER_SECOND`], no connection waits much longer than 5 s.
const MAX_WAITING: usize = 256;

/// Connections that wait for a handshake.
#[derive(Debug)]
pub(super) struct Admission<S> {
    /// The limit of the rate. `None` admits every connection at once.
    bucket: Option<TokenBucket>,
    waiting: BTreeMap<IpAddr, VecDeque<S>>,
    /// The source addresses with waiting connections, in the order of their turns.
    turns: VecDeque<IpAddr>,
    count: usize,
}

impl<S> Admission<S> {
    /// Admits at most [`PER_SECOND`] connections per second.
    pub(super) fn limited() -> Self {
        Self { bucket: TokenBucket::new(PER_SECOND, BURST), ..Self::unlimited() }
    }

    /// Admits every connection at once.
    pub(super) fn unlimited() -> Self {
        Self { bucket: None, waiting: BTreeMap::new(), turns: VecDeque::new(), count: 0 }
    }

    /// Adds a connection. Above [`MAX_WAITING`], drops the newest connection of the address with the most waiting
    /// connections.
    pub(super) fn add(&mut self, source: IpAddr, stream: S) {
        let source = network(source);
        let waiting = self.waiting.entry(source).or_default();
        if waiting.is_empty() {
            self.turns.push_back(source);
        }
        waiting.push_back(stream);
        self.count += 1;
        if self.count > MAX_WAITING {
            let most = self.waiting.iter().max_by_key(|(_, waiting)| waiting.len());
            if let Some(most) = most.map(|(source, _)| *source) {
                self.remove(most, VecDeque::pop_back);
            }
        }
    }

    /// Waits for the next admitted connection. A drop of the future loses no connection.
    pub(super) async fn next(&mut self) -> S {
        loop {
            if self.turns.is_empty() {
                pending::<()>().await;
            }
            if let Some(bucket) = &self.bucket {
                bucket.take("").await;
            }
            let Some(source) = self.turns.pop_front() else { continue };
            self.turns.push_back(source);
            if let Some(stream) = self.remove(source, VecDeque::pop_front) {
                return stream;
            }
        }
    }

    fn remove(&mut self, source: IpAddr, take: impl Fn(&mut VecDeque<S>) -> Option<S>) -> Option<S> {
        let waiting = self.waiting.get_mut(&source)?;
        let stream = take(waiting);
        if waiting.is_empty() {
            self.waiting.remove(&source);
            self.turns.retain(|turn| *turn != source);
        }
        self.count -= usize::from(stream.is_some());
        stream
    }
}

/// Returns the address that determines the turns of a connection. For IPv6, this is the /64 network, because a host may
/// use all addresses of a network.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::*;

    const KUBELET: &str = "10.0.0.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Adds 1,000 connections from three addresses, numbered from 1,000.
    fn flood(admission: &mut Admission<usize>) {
        for number in 0..1_000 {
            admission.add(ip(&format!("10.0.1.{}", number % 3)), 1_000 + number);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_wait_once_the_burst_is_used_up() {
        let mut admission = Admission::limited();
        let start = Instant::now();
        for number in 0..150 {
            admission.add(ip(KUBELET), number);
        }
        for number in 0..150 {
            assert_eq!(admission.next().await, number);
        }
        let elapsed = start.elapsed();
        assert!((1_999..2_050).contains(&elapsed.as_millis()), "{elapsed:?}");
        assert!(timeout(Duration::from_mins(1), admission.next()).await.is_err(), "nothing waits");
    }

    #[tokio::test(start_paused = true)]
    async fn other_addresses_have_their_turn_in_a_flood() {
        let mut admission = Admission::limited();
        flood(&mut admission);
        for _ in 0..200 {
            admission.next().await;
            flood(&mut admission);
        }
        admission.add(ip(KUBELET), 1);
        let start = Instant::now();
        let mut before = 0;
        while admission.next().await != 1 {
            before += 1;
            assert!(before <= 3, "more than one connection of each other address came first");
            flood(&mut admission);
        }
        assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_wait_loses_no_connection_and_no_token() {
        let mut admission = Admission::limited();
        for number in 0..51 {
            admission.add(ip(KUBELET), number);
        }
        for number in 0..50 {
            assert_eq!(admission.next().await, number);
        }
        let start = Instant::now();
        for _ in 0..10 {
            assert!(timeout(Duration::from_millis(1), admission.next()).await.is_err());
        }
        assert_eq!(admission.next().await, 50);
        assert!(start.elapsed() < Duration::from_millis(25), "{:?}", start.elapsed());
    }

    #[test]
    fn waiting_connections_are_bounded_and_the_flood_loses_its_own() {
        let mut admission = Admission::unlimited();
        admission.add(ip(KUBELET), 1);
        for _ in 0..3 {
            flood(&mut admission);
        }
        assert_eq!(admission.count, MAX_WAITING);
        assert_eq!(admission.waiting.values().map(VecDeque::len).sum::<usize>(), MAX_WAITING);
        assert_eq!(admission.waiting[&ip(KUBELET)], [1]);
        assert_eq!(admission.turns.len(), 4);
    }

    #[test]
    fn addresses_of_one_host_share_a_turn() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ] {
            assert_eq!(network(ip(one)) == network(ip(other)), same, "{one} {other}");
        }
    }
}
