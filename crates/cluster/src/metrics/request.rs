//! The request of one query.

use std::sync::Arc;

use autoscaling::query::{Answer, Query, QueryError};

use super::apis::{FailedQuery, FetchError, Inner};
use super::usage::{Reader, Snapshot};
use super::{custom, external, resource};
use crate::call::SentTime;

impl Inner {
    /// Sends the request of one query.
    pub(super) async fn fetch(&self, query: &Query, sent: &SentTime) -> Result<Answer, QueryError> {
        self.limited(query, self.request(query, sent)).await.map_err(|unanswered| unanswered.error)
    }

    /// Fetches the usage of the pods that a selector matches. The empty selector matches all pods of the
    /// namespace.
    pub(super) async fn usage(
        &self,
        namespace: &Arc<str>,
        selector: &Arc<str>,
        reader: Reader,
        sent: &SentTime,
    ) -> Result<Snapshot, FailedQuery> {
        let query = Query::Resource { namespace: Arc::clone(namespace), selector: Arc::clone(selector) };
        self.limited(&query, resource::fetch(self, namespace, selector, reader, sent)).await
    }

    async fn request(&self, query: &Query, sent: &SentTime) -> Result<Answer, FetchError> {
        match query {
            Query::Resource { namespace, selector } => {
                let usage =
                    resource::fetch(self, namespace, selector, Reader::without_labels(), sent).await?;
                Ok(Answer::Resource(usage.all()))
            }
            Query::Pods { namespace, metric, selector, metric_selector } => {
                custom::ask_pods(self, namespace, metric, selector, metric_selector, sent).await
            }
            Query::Object { namespace, group, kind, name, metric, metric_selector } => {
                let described = custom::DescribedObject { namespace, group, kind, name };
                custom::ask_object(self, described, metric, metric_selector, sent).await
            }
            Query::External { namespace, metric, selector } => {
                external::fetch(self, namespace, metric, selector, sent).await
            }
        }
    }
}
