//! Planted bugs: what a target must find when it is told to, so that it is known to look.

use std::sync::OnceLock;

/// Whether the environment asks for the bug of this name: `CONCERTINA_PLANT=name`.
pub fn planted(name: &str) -> bool {
    static PLANT: OnceLock<Option<String>> = OnceLock::new();
    PLANT.get_or_init(|| std::env::var("CONCERTINA_PLANT").ok()).as_deref() == Some(name)
}
