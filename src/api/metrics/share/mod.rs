//! What HPAs share of the metrics APIs.
//!
//! An answer serves whoever asks the same within an age. HPAs of one namespace share one list of all its pods where
//! that is cheaper than a list for each of them (`choice`): each selects its pods by the labels that come with the list,
//! which are what the server itself selects by. If all items come without labels, or the server refuses to list the
//! namespace, each HPA of that namespace asks for itself for a while.
//!
//! A failure reads as it would have if each had asked for itself: what any query would have met is told to all who
//! waited, and after anything else each asks for itself at once.

mod choice;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use autoscaling::query::{Answer, Query, QueryError};
use autoscaling::selector::Selector;
use futures::FutureExt;
use tokio::time::Instant;

use self::choice::{Choice, Way};
use super::ask::{Inner, Unanswered};
use super::flight::Flights;
use super::usage::{Reader, Snapshot};
use super::{panicked, resource};
use crate::api::call::Sent;

/// How often what nobody may use any more is looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// How answers are shared.
#[derive(Debug, Clone)]
pub struct Sharing {
    /// `--metric-snapshot-age`: how long before a sync asks its answer may have been asked for.
    pub age: Duration,
    /// How often each HPA asks: the sync period.
    pub period: Duration,
    /// How many pods namespaces have, as far as is known.
    pub pods: Arc<dyn NamespacePods>,
}

/// Knows how many pods a namespace has: what a list of it costs.
pub trait NamespacePods: std::fmt::Debug + Send + Sync {
    /// How many pods a namespace has.
    fn count(&self, namespace: &str) -> usize;
}

/// What is shared, and how.
#[derive(Debug)]
pub(super) struct Shares {
    sharing: Sharing,
    /// Equal queries.
    queries: Flights<Query, Answer, QueryError>,
    /// All pods of a namespace.
    snapshots: Flights<Arc<str>, Arc<Snapshot>, Missed>,
    choices: Mutex<BTreeMap<Arc<str>, Choice>>,
    /// Whether somebody looks for what is old.
    sweeping: AtomicBool,
}

/// Why there is no snapshot.
#[derive(Debug, Clone)]
enum Missed {
    /// Any query would have met this.
    Api(QueryError),
    /// Each has to ask for itself.
    AskAlone,
}

impl Shares {
    pub(super) fn new(sharing: Sharing) -> Self {
        Self {
            queries: Flights::new(Some(sharing.age), panicked),
            snapshots: Flights::new(Some(sharing.age), || Missed::Api(panicked())),
            choices: Mutex::default(),
            sweeping: AtomicBool::new(false),
            sharing,
        }
    }

    /// Answers a query with what was asked for an age ago or later.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        query: Query,
    ) -> Result<Answer, QueryError> {
        self.sweep_later();
        if let Query::Resource { namespace, selector } = &query
            && let Some(answer) = self.select(inner, namespace, selector).await
        {
            return answer;
        }
        let (shares, inner, asked) = (Arc::clone(self), Arc::clone(inner), query.clone());
        let begin = move |sent: Sent| async move { shares.ask_alone(&inner, &asked, &sent).await }.boxed();
        self.queries.join(query, begin).await
    }

    async fn ask_alone(&self, inner: &Inner, query: &Query, sent: &Sent) -> Result<Answer, QueryError> {
        let Query::Resource { namespace, selector } = query else {
            return inner.ask(query, sent).await;
        };
        let usage = inner.usage(namespace, selector, Reader::without_labels(), sent).await;
        let usage = usage.map_err(|unanswered| unanswered.error)?;
        self.with_choice(namespace, |choice| choice.answered(usage.bytes()));
        Ok(Answer::Resource(usage.all()))
    }

    /// The pods that a selector matches, out of all of the namespace; `None` if the query is to be asked for itself.
    async fn select(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        namespace: &Arc<str>,
        text: &Arc<str>,
    ) -> Option<Result<Answer, QueryError>> {
        let selector = Selector::parse(text).ok().filter(|selector| !selector.is_empty())?;
        let pods = self.sharing.pods.count(namespace);
        let way =
            self.with_choice(namespace, |choice| choice.asked(Instant::now(), pods, inner.max_response()));
        if way == Way::Selectors {
            return None;
        }
        let (shares, inner, of) = (Arc::clone(self), Arc::clone(inner), Arc::clone(namespace));
        let begin = move |sent: Sent| async move { shares.snapshot(&inner, &of, &sent).await }.boxed();
        match self.snapshots.join(Arc::clone(namespace), begin).await {
            Ok(snapshot) => {
                let usage = snapshot.select(&selector);
                self.with_choice(namespace, |choice| choice.answered(snapshot.bytes_of(usage.len())));
                // Pods without any sample are rare; labels that do not mean what they should would look the same.
                let doubtful = usage.is_empty() && !snapshot.is_empty();
                (!doubtful).then_some(Ok(Answer::Resource(usage)))
            }
            Err(Missed::Api(QueryError { message })) => {
                let message = resource::reworded(&message, namespace, text).map_or(message, Into::into);
                Some(Err(QueryError { message }))
            }
            Err(Missed::AskAlone) => None,
        }
    }

    /// Asks for all pods of a namespace.
    async fn snapshot(
        &self,
        inner: &Inner,
        namespace: &Arc<str>,
        sent: &Sent,
    ) -> Result<Arc<Snapshot>, Missed> {
        let usage = inner.usage(namespace, &"".into(), Reader::with_labels(), sent).await;
        let pods = self.sharing.pods.count(namespace);
        let now = Instant::now();
        match usage {
            Ok(usage) if usage.is_empty() || usage.has_labels() => {
                self.with_choice(namespace, |choice| choice.listed(usage.bytes(), pods));
                Ok(Arc::new(usage))
            }
            Ok(_) => {
                if self.with_choice(namespace, |choice| choice.failed(now)) {
                    tracing::debug!(
                        namespace = &**namespace,
                        "metrics.k8s.io tells no labels of pods: each HPA asks for its own"
                    );
                }
                Err(Missed::AskAlone)
            }
            Err(Unanswered { error, is_of_api: true }) => Err(Missed::Api(error)),
            Err(Unanswered { error, is_of_api: false }) => {
                if self.with_choice(namespace, |choice| choice.failed(now)) {
                    tracing::debug!(
                        namespace = &**namespace,
                        %error,
                        "metrics.k8s.io does not list this namespace: each HPA asks for its own pods"
                    );
                }
                Err(Missed::AskAlone)
            }
        }
    }

    fn with_choice<R>(&self, namespace: &Arc<str>, act: impl FnOnce(&mut Choice) -> R) -> R {
        let begin = || Choice::new(Instant::now(), self.sharing.age, self.sharing.period);
        act(self.choices().entry(Arc::clone(namespace)).or_insert_with(begin))
    }

    fn choices(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Choice>> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that nothing stays for good: neither answers nor what is known of namespaces without HPAs.
    fn sweep_later(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let shares = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(shares) = shares.upgrade() else { return };
                // Before looking: what comes meanwhile begins a sweep of its own.
                shares.sweeping.store(false, Ordering::Release);
                if !shares.sweep(Instant::now()) || shares.sweeping.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// Forgets what is old. Whether anything is left.
    fn sweep(&self, now: Instant) -> bool {
        let queries = self.queries.sweep(now);
        let snapshots = self.snapshots.sweep(now);
        let mut choices = self.choices();
        choices.retain(|_, choice| !choice.is_idle(now));
        queries || snapshots || !choices.is_empty()
    }
}

#[cfg(test)]
mod tests;
