//! The leader's side of replication: serves histories to standbys, and waits at shutdown until the standbys are up to
//! date.

use std::collections::BTreeMap;
use std::str::Utf8Error;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{CONTENT_TYPE, Writer};
use crate::page::{HeldPage, Reply};
use crate::reconcile::{Controller, Revision, RevisionError};
use crate::record::Answer;
use autoscaling::duration::{DurationError, GoDuration};

/// Maximum time to hold back a response.
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum number of histories to read under one lock, because syncs wait for the lock.
const AT_ONCE: usize = 256;
/// The leader waits for a standby if the last request of the standby is at most this old.
const RECENT: Duration = Duration::from_secs(3);
/// Maximum number of standbys to wait for. A cluster usually has one or two standbys.
const STANDBYS: usize = 16;

/// The phase of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// This process does not lead.
    StandsBy,
    /// This process leads, and its histories change.
    Leads,
    /// This process was the leader and starts no more syncs.
    Concluded,
}

/// The histories of this process, for standbys.
#[derive(Debug)]
pub struct Source {
    controller: Arc<Controller>,
    phase: watch::Sender<Phase>,
    standbys: Mutex<BTreeMap<String, Standby>>,
    /// Notified when a standby is up to date.
    has_all: watch::Sender<()>,
}

/// A standby that copies the histories of this process.
#[derive(Debug, Clone, Copy)]
struct Standby {
    last_request: Instant,
    /// Whether the standby has confirmed the last state.
    has_all: bool,
}

/// The parameters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    since: Option<Revision>,
    wait: Duration,
    standby: Option<String>,
}

/// The reason why the parameters of a request are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum QueryError {
    #[error("{0}: {1}")]
    Encoding(String, Utf8Error),
    #[error("since: {0}")]
    Since(#[from] RevisionError),
    #[error("wait: {0}")]
    Wait(#[from] DurationError),
    #[error("wait: must not be negative")]
    NegativeWait,
    #[error("standby: must have at most 512 bytes")]
    LongName,
    #[error("{0}: unknown parameter; use since, wait or standby")]
    Unknown(String),
}

impl Source {
    /// Creates the source of this controller's histories. The process starts as a standby.
    pub fn new(controller: Arc<Controller>) -> Arc<Self> {
        let phase = watch::Sender::new(Phase::StandsBy);
        Arc::new(Self { controller, phase, standbys: Mutex::default(), has_all: watch::Sender::new(()) })
    }

    /// Marks this process as the leader.
    pub fn leads(&self) {
        self.phase.send_replace(Phase::Leads);
    }

    /// Marks this process as a standby again: its histories are no longer served.
    pub fn lost(&self) {
        self.phase.send_replace(Phase::StandsBy);
    }

    /// Marks the histories as final: no sync is in flight, and none will start. Waits until all recent standbys have
    /// them.
    pub async fn conclude(&self) {
        let mut changes = self.has_all.subscribe();
        self.phase.send_replace(Phase::Concluded);
        while self.is_awaited() {
            changes.mark_unchanged();
            // The channel stays open, because this struct owns the sender.
            let _ = changes.changed().await;
        }
    }

    /// Creates the page. `source` is `None` without leader election.
    pub fn page(source: Option<Arc<Self>>) -> HeldPage {
        Arc::new(move |query| {
            let (source, query) = (source.clone(), query.map(str::to_owned));
            Box::pin(async move {
                let Some(source) = source else {
                    let message = "no histories: this controller runs without leader election";
                    return Reply::json(Answer::failure(StatusCode::NOT_FOUND, message.to_owned()));
                };
                match Query::parse(query.as_deref()) {
                    Ok(query) => source.answer(&query).await,
                    Err(error) => Reply::json(Answer::failure(StatusCode::BAD_REQUEST, error.to_string())),
                }
            })
        })
    }

    async fn answer(&self, query: &Query) -> Reply {
        let mut phase = self.phase.subscribe();
        if *phase.borrow() == Phase::StandsBy {
            return standby_reply();
        }
        self.record_request(query);
        // A clock jump changes every history.
        self.controller.clock_reading();
        let revision = self.controller.histories.revision();
        let is_known =
            query.since.is_some_and(|since| since.epoch == revision.epoch && since.change <= revision.change);
        if is_known {
            let ended = phase.wait_for(|phase| *phase != Phase::Leads);
            let _ = timeout(query.wait.min(LONGEST), ended).await;
        }
        // Read the phase before the histories: if it is `Concluded`, the histories are complete.
        let phase = *self.phase.borrow();
        if phase == Phase::StandsBy {
            return standby_reply();
        }
        let is_concluded = phase == Phase::Concluded;
        let now = self.controller.clock_reading().at;
        let mut writer = Writer::default();
        let mut changed = self.controller.histories.changed_since(query.since, AT_ONCE);
        loop {
            writer.add(&changed);
            if !changed.more || writer.is_full() {
                break;
            }
            changed = self.controller.histories.changed_since(Some(changed.upto), AT_ONCE);
        }
        let last = is_concluded && !changed.more;
        Reply {
            status: StatusCode::OK,
            content_type: CONTENT_TYPE,
            body: writer.finish(now, changed.upto, changed.more, last),
        }
    }

    /// Records the standby of a request. Once the histories are final, a standby that requests changes after the last
    /// revision is up to date.
    fn record_request(&self, query: &Query) {
        let Some(name) = &query.standby else { return };
        let has_all = *self.phase.borrow() == Phase::Concluded
            && query.since == Some(self.controller.histories.revision());
        let now = Instant::now();
        let mut standbys = self.standbys.lock();
        standbys.retain(|_, standby| standby.is_recent(now));
        if standbys.len() < STANDBYS || standbys.contains_key(name) {
            standbys.insert(name.clone(), Standby { last_request: now, has_all });
        }
        drop(standbys);
        if has_all {
            self.has_all.send_replace(());
        }
    }

    /// Returns whether a standby with a recent request still lacks changes.
    fn is_awaited(&self) -> bool {
        let now = Instant::now();
        self.standbys.lock().values().any(|standby| standby.is_recent(now) && !standby.has_all)
    }
}

fn standby_reply() -> Reply {
    let message = "this replica does not lead: see the Lease for the leader".to_owned();
    Reply::json(Answer::failure(StatusCode::SERVICE_UNAVAILABLE, message))
}

impl Standby {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_request) <= RECENT
    }
}

impl Query {
    /// Parses `since=EPOCH.CHANGE&wait=900ms&standby=NAME`. Every parameter is optional.
    fn parse(query: Option<&str>) -> Result<Self, QueryError> {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value)
                .decode_utf8()
                .map_err(|error| QueryError::Encoding(name.to_owned(), error))?;
            match name {
                "since" => parsed.since = Some(value.parse()?),
                "wait" => {
                    let wait: GoDuration = value.parse()?;
                    parsed.wait = wait.unsigned().ok_or(QueryError::NegativeWait)?;
                }
                "standby" if value.len() <= 512 => parsed.standby = Some(value.into_owned()),
                "standby" => return Err(QueryError::LongName),
                _ => return Err(QueryError::Unknown(name.to_owned())),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::history::{History, ScaleEvent};
    use jiff::Timestamp;

    use super::*;
    use crate::history::codec;
    use crate::history::replica::{Part, PartError};
    use crate::reconcile::Changed;

    #[test]
    fn query_is_parsed_and_errors_name_the_parameter() {
        let since = Some(Revision { epoch: 0xab, change: 3 });
        let text = "since=ab.3&wait=900ms&standby=pod-1%5F%26";
        let query = Query::parse(Some(text)).unwrap();
        let expected = Query { since, wait: Duration::from_millis(900), standby: Some("pod-1_&".to_owned()) };
        assert_eq!(query, expected);
        assert_eq!(Query::parse(None), Ok(Query::default()));
        let long = format!("standby={}", "a".repeat(513));
        for wrong in ["since=1", "wait=1", "wait=-1s", "until=1", "standby=%ff", &long] {
            let name = wrong.split('=').next().unwrap();
            assert!(Query::parse(Some(wrong)).unwrap_err().to_string().starts_with(name), "{wrong}");
        }
    }

    const NOW: Timestamp = Timestamp::constant(1_893_456_000, 123_456_789);

    fn history(change: i32) -> History {
        History { scale_ups: vec![ScaleEvent::new(NOW, change)], ..History::default() }
    }

    fn answer() -> Vec<u8> {
        let upto = Revision { epoch: u64::MAX, change: 9 };
        let histories =
            [("one", 1), ("other", 2)].map(|(uid, change)| (Arc::from(uid), history(change).into()));
        let mut writer = Writer::default();
        writer.add(&Changed { full: true, upto, more: false, histories: histories.into() });
        writer.finish(NOW, upto, false, true)
    }

    #[test]
    fn response_round_trips() {
        let part = Part::read(&answer()).unwrap();
        assert_eq!((part.full, part.more, part.last), (true, false, true));
        assert_eq!((part.now, part.upto), (NOW, Revision { epoch: u64::MAX, change: 9 }));
        let read = part.histories.iter().map(|(uid, bytes)| (&**uid, codec::decode(bytes).unwrap()));
        assert_eq!(read.collect::<Vec<_>>(), [("one", history(1).into()), ("other", history(2).into())]);
    }

    #[test]
    fn truncated_or_extended_response_is_refused() {
        let whole = answer();
        for length in 0..whole.len() {
            assert!(Part::read(&whole[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Part::read(&[&whole[..], &[0]].concat()), Err(PartError::Trailing(1)));
        assert_eq!(Part::read(b"<html>"), Err(PartError::Format));
        let mut next_version = whole;
        next_version[7] += 1;
        assert_eq!(Part::read(&next_version), Err(PartError::Format));
    }

    #[test]
    fn response_with_an_invalid_history_is_refused() {
        let mut bytes = answer();
        let uid = bytes.windows(3).position(|bytes| bytes == b"one").unwrap();
        // The version of the history follows its UID and its length.
        bytes[uid + "one".len() + 1] = 0xff;
        assert!(matches!(Part::read(&bytes), Err(PartError::History { uid, .. }) if &*uid == "one"));
    }
}
