//! Measurements without a controller, as medians over short rounds in which all variants take turns.
//! Other work on the machine affects all variants equally.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command};

use crate::Failure;
use crate::measure::percentile;
use crate::options::text;

/// The number and duration of rounds, and the folder for the table.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    /// The duration of one variant in one round.
    pub(super) time: Duration,
    pub(super) count: usize,
    folder: PathBuf,
}

/// Adds the arguments for rounds.
pub(super) fn with_rounds(command: Command, seconds: &'static str) -> Command {
    command
        .arg(text("seconds", "Seconds per variant and round").default_value(seconds))
        .arg(
            text("runs", "Number of rounds; the table has the medians")
                .visible_alias("repeat")
                .default_value("15"),
        )
        .arg(text("out", "Folder for the table").default_value("target/scale"))
}

impl Rounds {
    /// Reads the arguments for rounds.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        Ok(Self {
            time: Duration::try_from_secs_f64(text("seconds").parse()?)?,
            count: text("runs").parse()?,
            folder: text("out").into(),
        })
    }

    /// Prints a table and stores it in the folder.
    pub(super) fn publish(&self, name: &str, table: &str) -> Result<(), Failure> {
        print!("{table}");
        std::fs::create_dir_all(&self.folder)?;
        Ok(std::fs::write(self.folder.join(name), table)?)
    }
}

/// The median of one figure.
pub(super) fn median<T: Copy>(costs: &[T], of: fn(&T) -> f64) -> f64 {
    let mut values: Vec<_> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
}
