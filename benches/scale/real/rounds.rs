//! What measurements without a controller share: short rounds in which all ways take turns, and medians of them. What
//! else the machine does then meets all ways alike.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command};

use crate::Failure;
use crate::measure::percentile;
use crate::options::text;

/// How often and how long, and where the table goes.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    /// Of each way in each round.
    pub(super) time: Duration,
    pub(super) count: usize,
    folder: PathBuf,
}

/// The words for it.
pub(super) fn with_rounds(command: Command, seconds: &'static str) -> Command {
    command
        .arg(text("seconds", "How long for each way and round").default_value(seconds))
        .arg(
            text("runs", "Rounds, of whose figures the medians are told")
                .visible_alias("repeat")
                .default_value("15"),
        )
        .arg(text("out", "The folder for the table").default_value("target/scale"))
}

impl Rounds {
    /// Reads its words.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        Ok(Self {
            time: Duration::try_from_secs_f64(text("seconds").parse()?)?,
            count: text("runs").parse()?,
            folder: text("out").into(),
        })
    }

    /// Prints a table, and puts it into the folder.
    pub(super) fn tell(&self, name: &str, table: &str) -> Result<(), Failure> {
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
