//! Lets other tasks run while many objects arrive at once.

/// The bytes of objects after which other tasks run. Objects with the most expensive texts take milliseconds per 64 KiB.
const TURN: usize = 64 << 10;

/// The bytes of objects since other tasks ran last. A socket with enough data never waits, so a list would otherwise
/// occupy the thread until its end.
#[derive(Debug, Default)]
pub(crate) struct Turn(usize);

impl Turn {
    /// Adds the bytes of an object, and yields if they fill the turn.
    pub(crate) async fn add(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= TURN {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn other_tasks_run_after_each_turn() {
        let mut turn = Turn::default();
        for _ in 0..3 {
            assert!(turn.add(TURN - 1).now_or_never().is_some());
            assert!(turn.add(1).now_or_never().is_none());
        }
    }
}
