//! Supervises background tasks.
//!
//! If a task that feeds the controller, such as a watch, stops, the controller decides from stale data. [`Tasks`]
//! therefore records the first task that panics or stops early, and the process shuts down.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The failure of a background task, which is a bug in this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskFailure {
    /// The task panicked.
    #[error("background task {task:?} panicked: {message}; report this bug")]
    Panicked {
        /// The name of the task.
        task: Cow<'static, str>,
        /// The text of the panic.
        message: String,
    },
    /// The task returned before the shutdown.
    #[error("background task {task:?} stopped before the shutdown; report this bug")]
    Ended {
        /// The name of the task.
        task: Cow<'static, str>,
    },
}

/// The background tasks. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Tasks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    first: Mutex<Option<TaskFailure>>,
    failed: CancellationToken,
}

impl Tasks {
    /// Starts a task that runs until `stop`. A panic or a return before `stop` is a failure.
    pub fn spawn_until(
        &self,
        stop: &CancellationToken,
        name: impl Into<Cow<'static, str>>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (tasks, name, stop) = (self.clone(), name.into(), stop.clone());
        let ended = self.catch(name.clone(), task);
        tokio::spawn(stop.clone().run_until_cancelled_owned(ended).map(move |ended| {
            if ended.flatten().is_some() && !stop.is_cancelled() {
                tasks.fail(TaskFailure::Ended { task: name });
            }
        }))
    }

    /// Starts a task that may return. Only a panic is a failure.
    pub fn spawn(
        &self,
        name: impl Into<Cow<'static, str>>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(self.catch(name.into(), task).map(drop))
    }

    /// Runs a task. Returns `None` after a panic, which is a failure.
    pub fn catch<F: Future>(
        &self,
        name: Cow<'static, str>,
        task: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let tasks = self.clone();
        AssertUnwindSafe(task).catch_unwind().map(move |ended| match ended {
            Ok(output) => Some(output),
            Err(panic) => {
                tasks.fail(TaskFailure::Panicked { task: name, message: panic_message(&*panic) });
                None
            }
        })
    }

    /// Waits until a task fails.
    pub async fn failed(&self) {
        self.0.failed.cancelled().await;
    }

    /// Returns the first failure.
    pub fn failure(&self) -> Option<TaskFailure> {
        self.0.first.lock().clone()
    }

    fn fail(&self, failure: TaskFailure) {
        tracing::error!(error = %failure, "background task failed");
        self.0.first.lock().get_or_insert(failure);
        self.0.failed.cancel();
    }
}

/// Returns the text of a panic, or `no message`.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn failure_of(tasks: &Tasks) -> String {
        tasks.failure().map_or_else(String::new, |failure| failure.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_panics_is_named() {
        let tasks = Tasks::default();
        let stop = CancellationToken::new();
        tasks.spawn_until(&stop, "a", pending());
        tasks.spawn_until(&stop, "b", async { panic!("no {}", "pods") });
        tasks.failed().await;
        assert_eq!(failure_of(&tasks), "background task \"b\" panicked: no pods; report this bug");
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_ends_before_its_stop_is_named() {
        let tasks = Tasks::default();
        tasks.spawn_until(&CancellationToken::new(), "a", async {});
        tasks.failed().await;
        assert_eq!(failure_of(&tasks), "background task \"a\" stopped before the shutdown; report this bug");
    }

    #[tokio::test(start_paused = true)]
    async fn task_may_end_at_its_stop_or_when_it_is_done() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let until = tasks.spawn_until(&stop, "a", pending());
        let at_the_stop = tasks.spawn_until(&stop, "b", {
            let stop = stop.clone();
            async move { stop.cancelled().await }
        });
        tasks.spawn("c", async {}).await.unwrap();
        stop.cancel();
        until.await.unwrap();
        at_the_stop.await.unwrap();
        assert_eq!(tasks.failure(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn first_failure_is_kept() {
        let tasks = Tasks::default();
        for text in ["one", "two"] {
            assert_eq!(tasks.catch("a".into(), async { panic!("{text}") }).await, None::<()>);
        }
        assert!(failure_of(&tasks).contains("one"));
    }
}
