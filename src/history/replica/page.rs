//! The leader's side: what it answers to those who copy its histories, and that it does not go before they have all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::wire::{CONTENT_TYPE, Writer};
use crate::controller::{Controller, Revision};
use crate::duration::GoDuration;
use crate::record::Answer;
use crate::serve::{HeldPage, Reply};

/// The longest that an answer is held back.
const LONGEST: Duration = Duration::from_secs(5);
/// How many histories are taken at once while syncs wait.
const AT_ONCE: usize = 256;
/// Who has not asked for so long is not waited for.
const RECENT: Duration = Duration::from_secs(3);
/// How many standbys are waited for. A cluster has one or two.
const STANDBYS: usize = 16;

/// What this process has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It does not lead.
    StandsBy,
    /// It leads; its histories change.
    Leads,
    /// It has led and syncs no more.
    Concluded,
}

/// The histories of this process, as others may copy them.
#[derive(Debug)]
pub struct Source {
    controller: Arc<Controller>,
    phase: watch::Sender<Phase>,
    standbys: Mutex<BTreeMap<String, Standby>>,
    /// Told whenever a standby has everything.
    has_all: watch::Sender<()>,
}

/// One that copies.
#[derive(Debug, Clone, Copy)]
struct Standby {
    asked: Instant,
    /// It has said that it has the last state.
    has_all: bool,
}

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    since: Option<Revision>,
    wait: Duration,
    standby: Option<String>,
}

impl Source {
    /// The histories of this controller, which does not lead yet.
    pub fn new(controller: Arc<Controller>) -> Arc<Self> {
        let phase = watch::Sender::new(Phase::StandsBy);
        Arc::new(Self { controller, phase, standbys: Mutex::default(), has_all: watch::Sender::new(()) })
    }

    /// This process leads.
    pub fn leads(&self) {
        self.phase.send_replace(Phase::Leads);
    }

    /// This process leads no more, and its histories are nobody's business.
    pub fn lost(&self) {
        self.phase.send_replace(Phase::StandsBy);
    }

    /// No sync is under way and none begins any more: what is answered from now on is final. Waits until those who have
    /// asked lately have it.
    pub async fn conclude(&self) {
        let mut changes = self.has_all.subscribe();
        self.phase.send_replace(Phase::Concluded);
        while self.is_awaited() {
            changes.mark_unchanged();
            // The sender is our own.
            let _ = changes.changed().await;
        }
    }

    /// The page, which only an elected leader has.
    pub fn page(source: Option<Arc<Self>>) -> HeldPage {
        Arc::new(move |query| {
            let (source, query) = (source.clone(), query.map(str::to_owned));
            Box::pin(async move {
                let Some(source) = source else {
                    let message = "no histories are copied: this controller stands for no election";
                    return Reply::json(Answer::failure(StatusCode::NOT_FOUND, message.to_owned()));
                };
                match Query::parse(query.as_deref()) {
                    Ok(query) => source.answer(&query).await,
                    Err(message) => Reply::json(Answer::failure(StatusCode::BAD_REQUEST, message)),
                }
            })
        })
    }

    async fn answer(&self, query: &Query) -> Reply {
        let mut phase = self.phase.subscribe();
        if *phase.borrow() == Phase::StandsBy {
            return stands_by();
        }
        self.asked(query);
        // A clock that was set makes changes of its own.
        self.controller.moment();
        let revision = self.controller.histories.revision();
        let is_known =
            query.since.is_some_and(|since| since.epoch == revision.epoch && since.change <= revision.change);
        if is_known {
            let ended = phase.wait_for(|phase| *phase != Phase::Leads);
            let _ = timeout(query.wait.min(LONGEST), ended).await;
        }
        // Looked at first: what is taken after the last sync is complete.
        let phase = *self.phase.borrow();
        if phase == Phase::StandsBy {
            return stands_by();
        }
        let is_concluded = phase == Phase::Concluded;
        let now = self.controller.moment().at;
        let mut writer = Writer::new();
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

    /// Takes note of who asks. A standby that asks for what comes after the last change has everything.
    fn asked(&self, query: &Query) {
        let Some(name) = &query.standby else { return };
        let has_all = *self.phase.borrow() == Phase::Concluded
            && query.since == Some(self.controller.histories.revision());
        let now = Instant::now();
        let mut standbys = self.standbys();
        standbys.retain(|_, standby| standby.is_recent(now));
        if standbys.len() < STANDBYS || standbys.contains_key(name) {
            standbys.insert(name.clone(), Standby { asked: now, has_all });
        }
        drop(standbys);
        if has_all {
            self.has_all.send_replace(());
        }
    }

    /// Whether somebody who has asked lately does not have everything.
    fn is_awaited(&self) -> bool {
        let now = Instant::now();
        self.standbys().values().any(|standby| standby.is_recent(now) && !standby.has_all)
    }

    fn standbys(&self) -> MutexGuard<'_, BTreeMap<String, Standby>> {
        self.standbys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stands_by() -> Reply {
    let message = "this replica does not lead: the Lease tells which one does".to_owned();
    Reply::json(Answer::failure(StatusCode::SERVICE_UNAVAILABLE, message))
}

impl Standby {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) <= RECENT
    }
}

impl Query {
    /// `since=EPOCH.CHANGE&wait=900ms&standby=NAME`, each of which may be missing.
    fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                percent_decode_str(value).decode_utf8().map_err(|error| format!("{name}: {error}"))?;
            match name {
                "since" => parsed.since = Some(value.parse().map_err(|error| format!("since: {error}"))?),
                "wait" => {
                    let wait: GoDuration = value.parse().map_err(|error| format!("wait: {error}"))?;
                    parsed.wait = wait.unsigned().ok_or("wait: must not be negative")?;
                }
                "standby" if value.len() <= 512 => parsed.standby = Some(value.into_owned()),
                "standby" => return Err("standby: must have at most 512 bytes".to_owned()),
                _ => return Err(format!("{name}: not known; since, wait and standby are")),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_what_is_wrong_with_it_is_named() {
        let since = Some(Revision { epoch: 0xab, change: 3 });
        let query = Query::parse(Some("since=ab.3&wait=900ms&standby=pod-1%5F%26")).unwrap();
        let expected = Query { since, wait: Duration::from_millis(900), standby: Some("pod-1_&".to_owned()) };
        assert_eq!(query, expected);
        assert_eq!(Query::parse(None), Ok(Query::default()));
        let long = format!("standby={}", "a".repeat(513));
        for wrong in ["since=1", "wait=1", "wait=-1s", "until=1", "standby=%ff", &long] {
            let name = wrong.split('=').next().unwrap();
            assert!(Query::parse(Some(wrong)).unwrap_err().starts_with(name), "{wrong}");
        }
    }
}
