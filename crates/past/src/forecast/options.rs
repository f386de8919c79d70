//! The command line of `concertina forecast`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::advise::source::{self, PastSource};
use ::backtest::replay::{Metric, World};
use ::backtest::series::Series;
use ::forecast::Settings;
use flags::CliError;
use policies::schedule;
use terminal::options::{Output, option, output, positive_duration};

/// The highest `maxReplicas` of a replay.
const MOST_PODS: i32 = 5_000;
/// The highest default of `maxReplicas`.
const MOST_PODS_BY_DEFAULT: i32 = 1_000;
/// The days that only teach, unless the series is short.
const HISTORY: Duration = Duration::from_hours(7 * 24);

/// Where the load comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// `--csv`: a file. `-` means standard input.
    Csv(PathBuf),
    /// The past of an HPA.
    Hpa {
        /// Its name.
        name: String,
        /// Where it and its past come from.
        source: Box<PastSource>,
    },
}

/// The options of `forecast backtest`.
#[derive(Debug, Clone, PartialEq)]
pub struct BacktestOptions {
    /// Where the load comes from.
    pub origin: Origin,
    /// `--floors`: the file for the floors.
    pub floors: Option<PathBuf>,
    /// `--report`: the file for the HTML page.
    pub report: Option<PathBuf>,
    /// `--output`: the format of the result.
    pub output: Output,
    /// The settings of the forecast.
    pub settings: Settings,
    /// `--target`: the target in percent.
    target: i32,
    /// `--pod-start`: the bounds in seconds.
    pod_start: (f64, f64),
    /// `--metric-age`.
    metric_age: Duration,
    /// `--max-replicas`.
    max_replicas: Option<i32>,
    /// `--history`.
    history: Duration,
    /// `--seed`.
    seed: u64,
}

impl BacktestOptions {
    /// The minutes of a series that only teach: at most half of it.
    pub fn history(&self, minutes: usize) -> usize {
        usize::try_from(self.history.as_secs() / 60).unwrap_or(usize::MAX).min(minutes / 2)
    }

    /// An HPA of a cluster and its workload, with the age of the metric and the seed of the command line.
    pub fn world_of(&self, world: World) -> World {
        World { metric_age: self.metric_age(), seed: self.seed, ..world }
    }

    fn metric_age(&self) -> i64 {
        i64::try_from(self.metric_age.as_secs()).unwrap_or(i64::MAX)
    }

    /// The HPA and its workload.
    pub fn world(&self, series: &Series) -> World {
        let peak = series.loads.iter().flatten().copied().fold(0.0, f64::max);
        // Twice what the peak needs at the target.
        let enough = (1..MOST_PODS_BY_DEFAULT)
            .find(|pods| f64::from(*pods) * f64::from(self.target) >= 200.0 * peak)
            .unwrap_or(MOST_PODS_BY_DEFAULT);
        World {
            metric: Metric::Cpu,
            target: self.target,
            min_replicas: 1,
            behavior: None,
            pod_start: self.pod_start,
            metric_age: self.metric_age(),
            max_replicas: self.max_replicas.unwrap_or(enough),
            seed: self.seed,
        }
    }
}

/// Creates the command line of `forecast`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    Command::new("forecast")
        .no_binary_name(true)
        .bin_name(format!("{program} forecast"))
        .about("Tries floors from the load of earlier days.")
        .after_help(format!(
            "Examples:\n\
             \x20 {program} forecast backtest --csv load.csv\n\
             \x20 {program} forecast backtest -n shop web --prometheus http://localhost:9090",
        ))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(backtest())
}

/// Returns the subcommand `backtest` with its flags.
fn backtest() -> Command {
    let path = |name, help| option(name, "file", help).value_parser(value_parser!(PathBuf));
    let of_hpa = ["target", "pod-start", "max-replicas"];
    source::arguments(Command::new("backtest"))
        .about("Replays a recorded load with an HPA alone, with a floor, with a lower target and with an oracle")
        .long_about(
            "Replays a recorded load with an HPA on cpu, in steps of 15 seconds: alone, with a floor from the load of\n\
             earlier days, alone with a target of 45 %, and with an oracle as the floor. The decisions are those of\n\
             the controller. A floor uses only the load before its minute. No cluster is read or written.\n\n\
             The file has the columns minute,load: the first minute in RFC 3339, then one row per minute, whose\n\
             minute may be empty. The load is in pods at 100 % utilization. An empty load is a gap.\n\n\
             With the name of an HPA instead of a file, the load, the target, the bounds and the start of pods are\n\
             those of the HPA and its past in Prometheus or in a record of the controller.",
        )
        .after_help(
            "Exit code: 0 if there is a result, 1 if a file cannot be read or written, 2 for an invalid command line.",
        )
        .arg(
            Arg::new("name")
                .help("HPA whose past is the load; needs --prometheus or --record")
                .conflicts_with_all(of_hpa)
                .requires(source::PAST),
        )
        .arg(
            path("csv", "File of the load; - reads standard input")
                .required_unless_present("name")
                .conflicts_with_all(["name", source::PAST]),
        )
        .arg(path("floors", "File to write the floor of each minute to"))
        .arg(path("report", "HTML page with charts of the load, the pods and the worst hours"))
        .arg(output(&["text", "json", "yaml"]))
        .arg(
            option("target", "percent", "Target of the HPA, in percent of the pods' capacity")
                .value_parser(value_parser!(i32).range(1..=100))
                .default_value("60"),
        )
        .arg(
            option("pod-start", "duration", "Time that a pod takes to start, or its bounds")
                .value_parser(pod_start)
                .default_value("60s-180s"),
        )
        .arg(
            option("metric-age", "duration", "Age of the metric at a sync")
                .value_parser(metric_age)
                .default_value("45s"),
        )
        .arg(
            option("max-replicas", "number", "maxReplicas of the HPA; default: twice what the highest load needs, at most 1000")
                .value_parser(value_parser!(i32).range(1..=i64::from(MOST_PODS))),
        )
        .arg(
            option("budget", "percent", "Pods that the floor may add to those of the HPA alone")
                .value_parser(share)
                .default_value("5%"),
        )
        .arg(
            option("maximum-floor", "percent", "Highest floor, relative to maxReplicas")
                .value_parser(share)
                .default_value("80%"),
        )
        .arg(
            option("shortage-value", "number", "Value of a pod-minute of shortage, in pod-minutes")
                .value_parser(value)
                .default_value("100"),
        )
        .arg(
            option("time-zone", "name", "Time zone of the load's days, such as Europe/Berlin")
                .value_parser(time_zone)
                .default_value("UTC"),
        )
        .arg(
            option("holiday", "date", "Day that counts as a Sunday, such as 2026-12-25; repeatable")
                .value_parser(|text: &str| text.parse::<Date>().map_err(|error| error.to_string()))
                .action(ArgAction::Append),
        )
        .arg(
            option("history", "duration", "Start of the load that only teaches, at most half of it; default: 168h")
                .value_parser(positive_duration),
        )
        .arg(seed())
}

fn seed() -> Arg {
    option("seed", "number", "Random seed of the times that pods take to start")
        .value_parser(value_parser!(u64))
        .default_value("1")
}

/// Parses a duration, or two with a hyphen between, into seconds.
fn pod_start(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let seconds = |text: &str| positive_duration(text).map(|duration| duration.as_secs_f64());
    let bounds = (seconds(low)?, seconds(high)?);
    let is_valid = bounds.0 <= bounds.1 && bounds.1 <= 3600.0;
    is_valid.then_some(bounds).ok_or_else(|| "must be from low to high, and at most 1h".to_owned())
}

fn metric_age(text: &str) -> Result<Duration, String> {
    let age = positive_duration(text)?;
    let is_valid = age >= Duration::from_secs(1) && age <= Duration::from_mins(10);
    is_valid.then_some(age).ok_or_else(|| "must be from 1s to 10m".to_owned())
}

/// Parses a percentage, with or without its sign.
fn share(text: &str) -> Result<f64, &'static str> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let share = percent.ok().filter(|percent| (0.0..=100.0).contains(percent));
    share.map(|percent| percent / 100.0).ok_or("must be from 0% to 100%")
}

fn value(text: &str) -> Result<f64, &'static str> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=1e6).contains(value));
    value.ok_or("must be a number from 0 to 1000000")
}

fn time_zone(name: &str) -> Result<TimeZone, &'static str> {
    schedule::time_zone(name).ok_or("no time zone has this name")
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> Result<BacktestOptions, CliError> {
    let Some(("backtest", matches)) = matches.subcommand() else {
        return Err(CliError::Subcommand("a subcommand of forecast is missing".to_owned()));
    };
    let source = PastSource::from_matches(matches)?.map(Box::new);
    let name = matches.get_one::<String>("name").cloned();
    let origin = match (name.zip(source), matches.get_one::<PathBuf>("csv").cloned()) {
        (Some((name, source)), _) => Origin::Hpa { name, source },
        (None, Some(csv)) => Origin::Csv(csv),
        (None, None) => return Err(CliError::Subcommand("--csv is missing".to_owned())),
    };
    let number = |name: &str| matches.get_one::<f64>(name).copied();
    let pod_start = matches.get_one::<(f64, f64)>("pod-start").copied().unwrap_or((60.0, 180.0));
    let mut settings = Settings::default();
    settings.budget = number("budget").unwrap_or(settings.budget);
    settings.maximum_floor = number("maximum-floor").unwrap_or(settings.maximum_floor);
    settings.shortage_value = number("shortage-value").unwrap_or(settings.shortage_value);
    settings.calendar.zone = matches.get_one::<TimeZone>("time-zone").cloned().unwrap_or(TimeZone::UTC);
    settings.calendar.holidays =
        matches.get_many::<Date>("holiday").into_iter().flatten().copied().collect::<BTreeSet<_>>();
    Ok(BacktestOptions {
        origin,
        floors: matches.get_one::<PathBuf>("floors").cloned(),
        report: matches.get_one::<PathBuf>("report").cloned(),
        output: Output::from_matches(matches),
        settings,
        target: matches.get_one::<i32>("target").copied().unwrap_or(60),
        pod_start,
        metric_age: matches.get_one::<Duration>("metric-age").copied().unwrap_or(Duration::from_secs(45)),
        max_replicas: matches.get_one::<i32>("max-replicas").copied(),
        history: matches.get_one::<Duration>("history").copied().unwrap_or(HISTORY),
        seed: matches.get_one::<u64>("seed").copied().unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &str) -> Result<BacktestOptions, String> {
        parsed(command("concertina"), &words.split_whitespace().collect::<Vec<_>>(), options)
    }

    #[test]
    fn parameters_reach_the_forecast_and_the_replay() {
        let options = read("backtest --csv a.csv").unwrap();
        assert_eq!((options.target, options.pod_start), (60, (60.0, 180.0)));
        assert_eq!((options.history(1000), options.history(100_000)), (500, 10_080));
        let series = Series { start: jiff::Timestamp::UNIX_EPOCH, loads: vec![Some(6.0), None] };
        let world = options.world(&series);
        assert_eq!((world.max_replicas, world.start_minutes()), (20, 3));
        let words = "backtest --csv - --target 70 --pod-start 5m --metric-age 3s --budget 10% --max-replicas 9 \
                     --time-zone europe/berlin --holiday 2026-12-25 --history 24h --shortage-value 300 -o yaml";
        let options = read(words).unwrap();
        assert_eq!((options.world(&series).start_minutes(), options.settings.budget), (5, 0.1));
        assert_eq!((options.settings.shortage_value, options.history(100_000)), (300.0, 1440));
        assert_eq!(options.settings.calendar.zone.iana_name(), Some("Europe/Berlin"));
        assert_eq!(options.settings.calendar.holidays.len(), 1);
        let World { target, metric_age, max_replicas, .. } = options.world(&series);
        assert_eq!((target, metric_age, max_replicas), (70, 3, 9));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        for (words, expected) in [
            ("", "backtest"),
            ("backtest", "--csv"),
            ("backtest web", "--prometheus"),
            ("backtest web --prometheus http://a --csv b", "--csv"),
            ("backtest web --prometheus http://a --target 50", "--target"),
            ("backtest --csv a --prometheus http://a", "cannot be used with"),
            ("backtest --csv a --target 0", "--target"),
            ("backtest --csv a --pod-start 3m-1m", "must be from low to high"),
            ("backtest --csv a --metric-age 1h", "must be from 1s to 10m"),
            ("backtest --csv a --budget 200%", "must be from 0% to 100%"),
            ("backtest --csv a --budget NaN", "must be from 0% to 100%"),
            ("backtest --csv a --time-zone Berlin", "no time zone has this name"),
            ("backtest --csv a --holiday 2026-02-30", "--holiday"),
            ("backtest --csv a --max-replicas 5001", "--max-replicas"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
