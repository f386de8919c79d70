//! Responds to what-if questions about HPAs: one simulation at a time.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::pages::{Body, answer, decoded};
use crate::store::Store;
use crate::whatif::{self, Question, WhatIf, WhatIfError};
use crate::{Subject, headers};

/// Time limit of a simulation, including the wait for an earlier one.
const WITHIN: Duration = Duration::from_mins(2);

/// The simulations of one console.
#[derive(Debug)]
pub(crate) struct Simulations {
    what_if: Arc<dyn WhatIf>,
    /// The permit to simulate.
    running: Semaphore,
}

impl Simulations {
    pub(crate) fn new(what_if: Arc<dyn WhatIf>) -> Self {
        Self { what_if, running: Semaphore::new(1) }
    }

    /// The HPA of a path such as `hpas/shop/web/whatif`. `None` for any other path.
    pub(crate) fn subject(path: &str, store: &Store) -> Option<Subject> {
        match path.split('/').collect::<Vec<_>>()[..] {
            ["hpas", namespace, name, "whatif"] => Some(store.subject(decoded(namespace)?, decoded(name)?)),
            _ => None,
        }
    }

    /// Runs a simulation. The connection owns it, so a closed connection stops it.
    pub(crate) async fn respond(&self, subject: Subject, query: &str) -> Response<Body> {
        let answering = async {
            let fields = whatif::fields(query)?;
            // The semaphore is never closed.
            let _permit = self.running.acquire().await;
            self.what_if.ask(Question { subject, fields }).await
        };
        let late = || WhatIfError::general("the simulation did not end within 2 min: choose a shorter time");
        let played = timeout(WITHIN, answering).await.unwrap_or_else(|_| Err(late()));
        let (status, body) = match played {
            Ok(document) => (StatusCode::OK, document),
            Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, serde_json::to_vec(&error).unwrap_or_default()),
        };
        let mut response = answer(status, "application/json", body);
        headers::protect(response.headers_mut());
        response
    }
}
