//! Gauges that are computed on every scrape, because no code path updates them: sizes, ages, and counts of
//! other components.

use std::sync::Arc;

use super::Controller;
use cluster::watch::{Informer, WatchStatus};

impl Controller {
    /// Registers the sizes of queue and caches, the dropped events and the state of `informers` with the
    /// metrics. The registration lasts for the lifetime of the controller.
    pub fn register_gauges(self: &Arc<Self>, informers: Vec<Informer>) {
        // The controller owns the metrics, which must not keep it alive.
        let controller = Arc::downgrade(self);
        self.telemetry.before_render(move || {
            if let Some(controller) = controller.upgrade() {
                controller.update_gauges(&informers);
            }
        });
    }

    fn update_gauges(&self, informers: &[Informer]) {
        let telemetry = &self.telemetry;
        self.queue.publish();
        telemetry.cache_objects("pods", self.pods.len());
        telemetry.cache_objects("horizontalpodautoscalers.autoscaling", self.hpas.len());
        if let Some(charges) = self.hpas.charges() {
            telemetry.handover(charges.counts(), charges.last_proof());
        }
        let events = self.events.stats();
        telemetry.events_dropped("spam", events.spam);
        telemetry.events_dropped("queue_full", events.overflow);
        telemetry.events_dropped("not_delivered", events.failed);
        telemetry.events_dropped("withheld", events.refused);
        for status in informers.iter().map(Informer::status) {
            self.update_watch_gauges(&status);
        }
        if let Some(targets) = &self.targets {
            let (watched, removed) = targets.levels();
            for resource in removed {
                telemetry.unwatched(&resource);
            }
            for (status, objects) in watched {
                telemetry.cache_objects(&status.resource, objects);
                self.update_watch_gauges(&status);
            }
        }
    }

    fn update_watch_gauges(&self, status: &WatchStatus) {
        self.telemetry.watch_age(&status.resource, status.age);
        for (reason, total) in &status.restarts {
            self.telemetry.watch_restarts(&status.resource, reason.as_str(), *total);
        }
    }
}
