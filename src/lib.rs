//! Concertina.
