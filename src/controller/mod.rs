//! Drives the syncs.
