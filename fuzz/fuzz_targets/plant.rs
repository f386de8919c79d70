//! Planted bugs, which prove that a target detects failures.

use std::sync::OnceLock;

/// Returns whether the environment variable `CONCERTINA_PLANT` selects the planted bug `name`.
pub fn planted(name: &str) -> bool {
    static PLANT: OnceLock<Option<String>> = OnceLock::new();
    PLANT.get_or_init(|| std::env::var("CONCERTINA_PLANT").ok()).as_deref() == Some(name)
}
