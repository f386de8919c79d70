//! What is read anew whenever the metrics are shown, because nothing moves when it changes: sizes, ages, counts that
//! others keep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Controller;
use crate::api::watch::Handle;

impl Controller {
    /// Has the metrics show the sizes of queue and caches, what became of events, and how these watches are doing, for
    /// as long as the controller lives.
    pub fn publish_levels(self: &Arc<Self>, watches: Vec<Handle>) {
        // The metrics live in the controller: they must not keep it alive.
        let controller = Arc::downgrade(self);
        self.telemetry.before_render(move || {
            if let Some(controller) = controller.upgrade() {
                controller.levels(&watches);
            }
        });
    }

    fn levels(&self, watches: &[Handle]) {
        let telemetry = &self.telemetry;
        self.queue.publish();
        telemetry.cache_objects("pods", self.pods.len());
        telemetry.cache_objects("horizontalpodautoscalers.autoscaling", self.hpas.len());
        let events = self.events.stats();
        telemetry.events_dropped("spam", events.spam);
        telemetry.events_dropped("queue_full", events.overflow);
        telemetry.events_dropped("not_delivered", events.failed);
        telemetry.events_dropped("withheld", events.refused);
        // A resource may have a watch for each of several namespaces: the oldest counts.
        let (mut ages, mut restarts) = (BTreeMap::<_, Duration>::new(), BTreeMap::<_, u64>::new());
        for watch in watches {
            let status = watch.status();
            let age = ages.entry(status.resource).or_default();
            *age = (*age).max(status.age);
            for (reason, count) in status.restarts {
                *restarts.entry((status.resource, reason)).or_default() += count;
            }
        }
        for (resource, age) in ages {
            telemetry.watch_age(resource, age);
        }
        for ((resource, reason), total) in restarts {
            telemetry.watch_restarts(resource, reason.as_str(), total);
        }
    }
}
