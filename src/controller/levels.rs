//! What is read anew whenever the metrics are shown, because nothing moves when it changes: sizes, ages, counts that
//! others keep.

use std::sync::Arc;

use super::Controller;
use crate::api::watch::{Informer, WatchStatus};

impl Controller {
    /// Has the metrics show the sizes of queue and caches, what became of events, and how these informers are doing, for
    /// as long as the controller lives.
    pub fn publish_levels(self: &Arc<Self>, informers: Vec<Informer>) {
        // The metrics live in the controller: they must not keep it alive.
        let controller = Arc::downgrade(self);
        self.telemetry.before_render(move || {
            if let Some(controller) = controller.upgrade() {
                controller.levels(&informers);
            }
        });
    }

    fn levels(&self, informers: &[Informer]) {
        let telemetry = &self.telemetry;
        self.queue.publish();
        telemetry.cache_objects("pods", self.pods.len());
        telemetry.cache_objects("horizontalpodautoscalers.autoscaling", self.hpas.len());
        let events = self.events.stats();
        telemetry.events_dropped("spam", events.spam);
        telemetry.events_dropped("queue_full", events.overflow);
        telemetry.events_dropped("not_delivered", events.failed);
        telemetry.events_dropped("withheld", events.refused);
        for status in informers.iter().map(Informer::status) {
            self.watch_level(&status);
        }
        if let Some(targets) = &self.targets {
            let (watched, gone) = targets.levels();
            for resource in gone {
                telemetry.unwatched(&resource);
            }
            for (status, objects) in watched {
                telemetry.cache_objects(&status.resource, objects);
                self.watch_level(&status);
            }
        }
    }

    fn watch_level(&self, status: &WatchStatus) {
        self.telemetry.watch_age(&status.resource, status.age);
        for (reason, total) in &status.restarts {
            self.telemetry.watch_restarts(&status.resource, reason.as_str(), *total);
        }
    }
}
