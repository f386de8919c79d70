//! The cost of an input, for texts that tenants write.

use std::fs;
use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The factor by which a target is slower than the parser in a release: it reads an input up to six times, checks the
/// results, counts each edge and each comparison, and runs with assertions.
const SLOWER: u32 = 2;
/// The number of measurements of an input that takes too long. A cold cache or another process can make one slow.
const REPEATS: usize = 4;

/// Runs the checks of an input. Panics if they need more heap than the limit of texts, or more CPU time than the limit
/// times [`SLOWER`].
pub fn bounded(check: impl Fn()) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let start = Instant::now();
    check();
    let elapsed = start.elapsed();
    let heap = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(heap <= limits::HEAP, "an input needs {heap} bytes of heap");
    if elapsed > limits::TIME * SLOWER {
        let times = (0..REPEATS).map(|_| {
            let start = thread_time();
            check();
            thread_time().saturating_sub(start)
        });
        let time = times.min().unwrap_or_default();
        assert!(time <= limits::TIME * SLOWER, "an input needs {time:?} of CPU time");
    }
}

/// The time that this thread has run. The kernel does not count the time in which other processes run.
fn thread_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0))
}
