//! The form in which a state is kept outside of the process: a byte for the version, then the compressed fields.
//!
//! Loads are stored as differences. If the form would be longer than [`LONGEST`], loads lose precision until it is
//! not. The minutes that a pod takes to start are not stored, so the first of them after a restart are not learned.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};

use crate::ledger::{CANDIDATES, Choice, Ledger};
use crate::peaks::{Code, Peaks};
use crate::state::{State, uid_hash};

/// The longest form, in bytes.
pub const LONGEST: usize = 4096;
/// The version of the form.
const VERSION: u8 = 1;
/// The longest form before it is compressed. A longer one is not a state.
const LARGEST: u64 = 8192;

/// The reason why a state cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Another version of this program stored the state.
    #[error(
        "the stored forecast has version {0}, and this program reads version {VERSION}: its history starts again"
    )]
    Version(u8),
    /// The bytes are not a state.
    #[error("the stored forecast is damaged: its history starts again")]
    Damaged,
    /// The state belongs to another HPA with the same name.
    #[error("the stored forecast belongs to another HPA with the same name: its history starts again")]
    OtherUid,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    uid: u64,
    replaced: bool,
    minute: i64,
    ledger: Ledger,
    choice: Choice,
    spent: (i64, f32),
    moved_until: i64,
    widening: f32,
    newest: i64,
    /// The difference of each code to the previous one, in wrapping arithmetic.
    codes: Vec<Code>,
}

impl State {
    /// Encodes the state, in at most [`LONGEST`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (newest, codes) = self.peaks.parts();
        let mut encoded = Vec::new();
        // With steps of 2^7, all loads are equal or unknown.
        for precision in 0..8 {
            let mut last: Code = 0;
            let differences = codes.iter().map(|code| {
                let coarse = (code >> precision << precision).max((*code).min(1));
                coarse.wrapping_sub(std::mem::replace(&mut last, coarse))
            });
            let stored = Stored {
                uid: self.uid,
                replaced: self.replaced,
                minute: self.minute,
                ledger: self.ledger.clone(),
                choice: self.choice,
                spent: self.spent,
                moved_until: self.moved_until,
                widening: self.widening,
                newest,
                codes: differences.collect(),
            };
            encoded = compressed(&stored).unwrap_or_default();
            if encoded.len() <= LONGEST {
                break;
            }
        }
        encoded
    }

    /// Decodes the state of the HPA with a UID.
    ///
    /// # Errors
    /// Returns a [`StoredError`] if the bytes are not a state of this HPA.
    pub fn decode(bytes: &[u8], uid: &str) -> Result<Self, StoredError> {
        let (version, rest) = bytes.split_first().ok_or(StoredError::Damaged)?;
        if *version != VERSION {
            return Err(StoredError::Version(*version));
        }
        let mut fields = Vec::new();
        DeflateDecoder::new(rest).take(LARGEST).read_to_end(&mut fields).map_err(|_| StoredError::Damaged)?;
        let mut stored: Stored = postcard::from_bytes(&fields).map_err(|_| StoredError::Damaged)?;
        if stored.uid != uid_hash(uid) {
            return Err(StoredError::OtherUid);
        }
        let mut last: Code = 0;
        for code in &mut stored.codes {
            last = last.wrapping_add(*code);
            *code = last;
        }
        let is_sound = stored.ledger.is_sound()
            && stored.spent.1.is_finite()
            && (-0.7..=1.0).contains(&stored.widening)
            && !matches!(stored.choice, Choice::Candidate(index) if usize::from(index) >= CANDIDATES);
        let peaks = Peaks::restored(stored.newest, &stored.codes).filter(|_| is_sound);
        let mut state = Self::new(uid);
        state.replaced = stored.replaced;
        state.minute = stored.minute;
        state.peaks = peaks.ok_or(StoredError::Damaged)?;
        state.ledger = stored.ledger;
        state.choice = stored.choice;
        state.spent = stored.spent;
        state.moved_until = stored.moved_until;
        state.widening = stored.widening;
        Ok(state)
    }
}

fn compressed(stored: &Stored) -> Option<Vec<u8>> {
    let fields = postcard::to_allocvec(stored).ok()?;
    let mut encoder = DeflateEncoder::new(vec![VERSION], Compression::best());
    encoder.write_all(&fields).ok()?;
    encoder.finish().ok()
}
