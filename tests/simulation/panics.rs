//! Records every panic in a run, also those that the process catches.
//!
//! The tasks of a run share one thread, so the records of parallel runs stay separate.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use controller::reconcile::{ConcludedSync, Observer};
use controller::tasks::panic_message;
use parking_lot::Mutex;

static HOOK: Once = Once::new();

thread_local! {
    static RECORDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts to record the panics of this thread, and drops those of an earlier run.
pub(crate) fn start() {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
            let text = format!("{}{place}", panic_message(info.payload()));
            RECORDED.with_borrow_mut(|recorded| recorded.push(text));
            previous(info);
        }));
    });
    RECORDED.with_borrow_mut(Vec::clear);
}

/// The first panic of this thread since [`start`].
pub(crate) fn first() -> Option<String> {
    RECORDED.with_borrow(|recorded| recorded.first().cloned())
}

/// A planted bug: the third sync of a lifetime panics.
#[derive(Debug, Default)]
pub(crate) struct PanickingSync(Mutex<u32>);

impl Observer for PanickingSync {
    fn concluded(&self, _: &ConcludedSync<'_>) {
        let mut syncs = self.0.lock();
        *syncs += 1;
        assert_ne!(*syncs, 3, "planted panic");
    }
}
