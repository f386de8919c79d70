//! Schedules compared with lists of their changes, and with changes that are computed minute by minute.

use jiff::ToSpan;
use jiff::civil::{Date, date};
use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The changes of the state between two times: the time of each change, and whether the schedule is active after it.
fn edges(schedule: &Recurrence, from: &str, to: &str) -> Vec<(String, bool)> {
    let (mut now, to) = (time(from), time(to));
    let mut edges = Vec::new();
    let mut is_active = schedule.phase(now).is_active;
    while let Some(until) = schedule.phase(now).until.filter(|until| *until <= to) {
        assert!(until > now, "the state at {now} ends at {until}");
        now = until;
        let phase = schedule.phase(now);
        if phase.is_active != is_active {
            is_active = phase.is_active;
            edges.push((now.to_string(), is_active));
        }
    }
    edges
}

#[track_caller]
fn assert_edges(zone: &str, start: &str, end: &str, from: &str, to: &str, expected: &[(&str, bool)]) {
    let schedule = Recurrence::parse(zone, start, end).unwrap();
    let expected: Vec<_> = expected.iter().map(|(time, open)| ((*time).to_owned(), *open)).collect();
    assert_eq!(edges(&schedule, from, to), expected);
}

#[test]
fn window_opens_and_closes_by_the_clock_of_its_zone() {
    assert_edges(
        "Europe/Berlin",
        "0 8 * * 1-5",
        "0 19 * * 1-5",
        "2026-11-26T12:00:00Z",
        "2026-11-30T12:00:00Z",
        &[
            ("2026-11-26T18:00:00Z", false),
            ("2026-11-27T07:00:00Z", true),
            ("2026-11-27T18:00:00Z", false),
            ("2026-11-30T07:00:00Z", true),
        ],
    );
}

#[test]
fn window_with_one_end_stays_open_over_further_starts() {
    let week = Recurrence::parse("UTC", "0 8 * * 1-5", "0 19 * * 5").unwrap();
    let phase = week.phase(time("2026-11-24T03:00:00Z"));
    assert_eq!(phase, Phase { is_active: true, until: Some(time("2026-11-27T19:00:00Z")) });
}

#[test]
fn skipped_local_time_takes_place_at_the_change_of_the_clock() {
    // On 2026-03-29 in Berlin, 02:00 to 03:00 do not exist.
    let (from, to) = ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z");
    assert_edges(
        "Europe/Berlin",
        "30 2 * * *",
        "0 5 * * *",
        from,
        to,
        &[("2026-03-29T01:00:00Z", true), ("2026-03-29T03:00:00Z", false)],
    );
    assert_edges("Europe/Berlin", "0 2 * * *", "30 2 * * *", from, to, &[]);
    assert_edges("Europe/Berlin", "30 2 * * *", "0 2 * * *", from, to, &[]);
}

#[test]
fn repeated_local_time_takes_place_once() {
    // On 2026-10-25 in Berlin, 02:00 to 03:00 exist twice.
    let (from, to) = ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z");
    assert_edges(
        "Europe/Berlin",
        "15 2 * * *",
        "45 2 * * *",
        from,
        to,
        &[("2026-10-25T00:15:00Z", true), ("2026-10-25T00:45:00Z", false)],
    );
    let schedule = Recurrence::parse("Europe/Berlin", "15 2 * * *", "45 2 * * *").unwrap();
    let second_pass = schedule.phase(time("2026-10-25T01:30:00Z"));
    assert_eq!(second_pass, Phase { is_active: false, until: Some(time("2026-10-26T01:15:00Z")) });
    // West of Greenwich, offsets are negative. On 2026-11-01 in New York, 01:00 to 02:00 exist twice.
    let schedule = Recurrence::parse("America/New_York", "15 1 * * *", "45 1 * * *").unwrap();
    let second_pass = schedule.phase(time("2026-11-01T06:30:00Z"));
    assert_eq!(second_pass, Phase { is_active: false, until: Some(time("2026-11-02T06:15:00Z")) });
}

#[test]
fn length_of_an_expression_is_bounded() {
    let of_length = |bytes: usize| format!("0{} 08 * * *", ",0".repeat((bytes - 10) / 2));
    for (bytes, is_valid) in [(256, true), (258, false)] {
        let expression = of_length(bytes);
        assert_eq!(expression.len(), bytes);
        assert_eq!(Recurrence::parse("UTC", &expression, "0 9 * * *").is_ok(), is_valid);
    }
}

#[test]
fn leap_day_comes_every_four_years() {
    assert_edges(
        "UTC",
        "0 0 29 2 *",
        "0 0 1 3 *",
        "2026-01-01T00:00:00Z",
        "2033-01-01T00:00:00Z",
        &[
            ("2028-02-29T00:00:00Z", true),
            ("2028-03-01T00:00:00Z", false),
            ("2032-02-29T00:00:00Z", true),
            ("2032-03-01T00:00:00Z", false),
        ],
    );
}

#[test]
fn start_counts_when_an_end_has_the_same_time() {
    let always = Recurrence::parse("UTC", "0 * * * *", "0 8 * * *").unwrap();
    assert_eq!(always.phase(time("2026-01-01T08:00:00Z")), Phase { is_active: true, until: None });
    let shifts = Recurrence::parse("UTC", "0 6,14 * * *", "0 14,22 * * *").unwrap();
    assert_eq!(shifts.phase(time("2026-01-01T07:00:00Z")).until, Some(time("2026-01-01T22:00:00Z")));
}

#[test]
fn invalid_schedule_names_the_field_and_the_cause() {
    let error = |zone, start, end| Recurrence::parse(zone, start, end).unwrap_err().to_string();
    assert_eq!(
        error("Berlin", "0 8 * * *", "0 9 * * *"),
        "timeZone: no time zone has the name \"Berlin\"; did you mean \"Europe/Berlin\"?"
    );
    assert_eq!(
        error("Mars/Base", "0 8 * * *", "0 9 * * *"),
        "timeZone: no time zone has the name \"Mars/Base\""
    );
    assert_eq!(error("UTC", "0 8 * * *", "0 8 * * *"), ScheduleError::Empty.to_string());
    assert_eq!(error("UTC", "0 0 30 2 *", "0 8 * * *"), "start: no time matches \"0 0 30 2 *\"");
    assert!(
        error("UTC", "0 8 * * *", "60 8 * * *").starts_with("end: \"60 8 * * *\" is not a cron expression")
    );
    assert!(error("UTC", "0 0 8 * * *", "0 9 * * *").starts_with("start: \"0 0 8 * * *\" is not a cron"));
    assert!(error("UTC", &"0,".repeat(1_000_000), "0 9 * * *").contains("at most 256"));
    assert!(Recurrence::parse("europe/berlin", "0 8 * * MON-FRI", "0 19 * * MON-FRI").is_ok());
}

#[test]
fn syntax_that_cronjobs_refuse_is_refused() {
    let parse = |expression: &str| Recurrence::parse("UTC", expression, "7 7 7 7 *");
    for expression in [
        "0 0 1 * +1#5",
        "0 0 1 * +1",
        "0 0 * * 1#5",
        "0 0 L * *",
        "0 0 * * 5L",
        "0 0 15W * *",
        "0 0 LW * *",
        "@daily",
        "@every 1m",
        "0 0 0 * * *",
        "0 0 * *",
        "60 0 * * *",
        "0 24 * * *",
        "0 0 0 * *",
        "0 0 32 * *",
        "0 0 * 13 *",
        "0 0 * * 7",
        "5-1 0 * * *",
        "*/0 0 * * *",
        "1-2-3 0 * * *",
        "1/2/3 0 * * *",
        "0 0 * * FRI-MON",
        "+5 0 * * *",
        "-5 0 * * *",
        ", 0 * * *",
        "1, 0 * * *",
        "0 0 * jan-mon *",
        "",
        "TZ=UTC 0 0 * * *",
    ] {
        assert!(parse(expression).is_err(), "{expression}: {:?}", parse(expression));
    }
    for expression in ["0 0 * Jan-MAR Sun,2-FRI/2", "*/15 9-17 ? * ?", "5/10 0 1,15 * *", "00 07 * * 1"] {
        assert!(parse(expression).is_ok(), "{expression}: {:?}", parse(expression));
    }
}

/// Whether a date matches, computed from lists of numbers as robfig/cron does.
fn matches_by_list(cron: &(Vec<i8>, Vec<i8>, Vec<i8>), star: (bool, bool), date: Date) -> bool {
    let (days, months, weekdays) = cron;
    let day = days.contains(&date.day());
    let weekday = weekdays.contains(&date.weekday().to_sunday_zero_offset());
    months.contains(&date.month()) && if star.0 || star.1 { day && weekday } else { day || weekday }
}

proptest! {
    #[test]
    fn search_finds_the_same_days_as_a_walk_over_eight_years(
        days in prop::collection::vec(1_i8..32, 0..3), months in prop::collection::vec(1_i8..13, 0..3),
        weekdays in prop::collection::vec(0_i8..7, 0..3), year in 2089_i16..2097, offset in 0_i32..365,
    ) {
        let field = |numbers: &[i8]| match numbers {
            [] => "*".to_owned(),
            numbers => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        };
        let text = format!("30 12 {} {} {}", field(&days), field(&months), field(&weekdays));
        let star = (days.is_empty(), weekdays.is_empty());
        let all = |numbers: Vec<i8>, range: std::ops::Range<i8>| if numbers.is_empty() { range.collect() } else { numbers };
        let lists = (all(days, 1..32), all(months, 1..13), all(weekdays, 0..7));
        let from = date(year, 1, 1).checked_add(offset.days()).unwrap();
        let next = from.series(1.day()).take(2923).find(|date| matches_by_list(&lists, star, *date));
        let days_before = std::iter::successors(Some(from), |date| date.checked_sub(1.day()).ok());
        let last = days_before.take(2923).find(|date| matches_by_list(&lists, star, *date));
        match Cron::parse(&text) {
            Err(error) => prop_assert_eq!((next, last, error), (None, None, CronError::NeverMatches)),
            Ok(cron) => {
                let at_noon = |date: Option<Date>| date.map(|date| date.at(12, 30, 0, 0));
                prop_assert_eq!(cron.next(from.at(0, 0, 0, 0), None), at_noon(next), "next of {}", text);
                prop_assert_eq!(cron.last(from.at(23, 0, 0, 0), true), at_noon(last), "last of {}", text);
            }
        }
    }

    #[test]
    fn end_that_is_no_start_is_found_as_by_a_walk_over_all_ends(
        start in "[0-9,]{0,2}(\\*|[0-9]|1?[0-9]-2[0-9]) (\\*|[0-9]|1-20) (\\*|[1-9]|1-20) \\* (\\*|[0-6]|1-5)",
        end in "(\\*/7|[0-9]|1[0-9]-2[0-9]) (\\*/5|[0-9]|1-20) (\\*|[1-9]|1-20) (1|\\*) (\\*|[0-6]|1-5)",
    ) {
        let (Ok(start), Ok(end)) = (Cron::parse(&start), Cron::parse(&end)) else { return Ok(()) };
        let from = date(2026, 11, 28).at(11, 7, 0, 0);
        let ends = std::iter::successors(end.next(from, None), |time| end.next(*time, None));
        let is_start = |time: &DateTime| start.last(*time, true) == Some(*time);
        let horizon = from.checked_add(3.years()).unwrap();
        let expected = ends.take(20_000).take_while(|time| *time < horizon).find(|time| !is_start(time));
        if let Some(expected) = expected {
            prop_assert_eq!(end.next(from, Some(&start)), Some(expected));
        }
    }
}

#[test]
fn days_eight_years_apart_are_found_and_days_of_no_month_are_refused() {
    let cron = Cron::parse("0 0 29 2 *").unwrap();
    let next = cron.next(date(2096, 2, 29).at(0, 0, 0, 0), None);
    assert_eq!(next, Some(date(2104, 2, 29).at(0, 0, 0, 0)));
    assert_eq!(cron.last(date(2104, 2, 29).at(0, 0, 0, 0), false), Some(date(2096, 2, 29).at(0, 0, 0, 0)));
    for expression in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30,31 2 ?"] {
        assert_eq!(Cron::parse(expression), Err(CronError::NeverMatches), "{expression}");
    }
    // A list of weekdays is an alternative to the list of days.
    assert!(Cron::parse("0 0 30 2 1").is_ok());
}

/// A schedule with one start and one end on some days of the week.
struct Daily {
    /// The minute of the day.
    start: i64,
    /// The minute of the day.
    end: i64,
    weekdays: [bool; 7],
}

impl Daily {
    fn expressions(&self) -> (String, String) {
        let days: Vec<_> = (0..7).filter(|day| self.weekdays[*day]).map(|day| day.to_string()).collect();
        let at = |minute: i64| format!("{} {} * * {}", minute % 60, minute / 60, days.join(","));
        (at(self.start), at(self.end))
    }

    /// The state after all changes of a local minute.
    fn apply(&self, is_active: bool, date: Date, minute: i64) -> bool {
        if !self.weekdays[usize::try_from(date.weekday().to_sunday_zero_offset()).unwrap()] {
            return is_active;
        }
        if minute == self.start { true } else { is_active && minute != self.end }
    }
}

/// The changes of a schedule, computed minute by minute. A repeated local minute is used only the first time, and a
/// skipped local minute occurs at the clock change.
fn table(zone: &TimeZone, daily: &Daily, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, bool)> {
    let mut changes = Vec::new();
    let local = |time: Timestamp| zone.to_datetime(time);
    let mut done = local(from);
    let mut is_active = false;
    let mut now = from;
    while now <= to {
        let (until, before) = (local(now), is_active);
        while done < until {
            done = done.checked_add(1.minute()).unwrap();
            is_active =
                daily.apply(is_active, done.date(), i64::from(done.hour()) * 60 + i64::from(done.minute()));
        }
        if is_active != before {
            changes.push((now, is_active));
        }
        now += SignedDuration::from_mins(1);
    }
    changes
}

fn assert_equals_table(zone_name: &str, daily: &Daily, from: Timestamp, to: Timestamp) {
    let (start, end) = daily.expressions();
    let schedule = Recurrence::parse(zone_name, &start, &end).unwrap();
    let expected = table(&time_zone(zone_name).unwrap(), daily, from, to);
    // The comparison starts at the first change, because the table does not contain the state before it.
    let Some((first, _)) = expected.first() else { return };
    let mut actual = vec![(*first, schedule.phase(*first).is_active)];
    let mut now = *first;
    while let Some(until) = schedule.phase(now).until.filter(|until| *until <= to) {
        now = until;
        let is_active = schedule.phase(now).is_active;
        if actual.last().is_some_and(|(_, last)| *last != is_active) {
            actual.push((now, is_active));
        }
    }
    assert_eq!(actual, expected, "{zone_name} {start} {end}");
}

const ZONES: [&str; 5] =
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago"];

#[test]
fn schedule_equals_each_minute_of_a_year_in_five_zones() {
    assert_equals_table_in_all_zones(time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
}

#[test]
#[ignore = "takes half a minute: .ci/run --long"]
fn schedule_equals_each_minute_of_ten_years_in_five_zones() {
    assert_equals_table_in_all_zones(time("2024-01-01T00:00:00Z"), time("2034-01-01T00:00:00Z"));
}

fn assert_equals_table_in_all_zones(from: Timestamp, to: Timestamp) {
    let daily = [
        Daily { start: 8 * 60, end: 19 * 60, weekdays: [false, true, true, true, true, true, false] },
        Daily { start: 90, end: 165, weekdays: [true; 7] },
    ];
    for (index, zone) in ZONES.iter().enumerate() {
        assert_equals_table(zone, &daily[index % 2], from, to);
    }
}

/// A hundredth of the usual cases, but at least 24, because each case computes 72,000 minutes.
fn hundredth_of_the_cases() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: (config.cases / 100).max(24), ..config }
}

proptest! {
    #![proptest_config(hundredth_of_the_cases())]

    #[test]
    fn schedule_equals_each_minute_around_changes_of_the_clock(
        zone in 0..ZONES.len(), autumn in any::<bool>(), start in 0_i64..300, end in 0_i64..300,
        weekdays in any::<[bool; 7]>(),
    ) {
        prop_assume!(start != end && weekdays.contains(&true));
        let month = if autumn { 9 } else { 2 };
        let from = date(2026, month, 20).at(0, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp();
        let to = from + SignedDuration::from_hours(24 * 50);
        assert_equals_table(ZONES[zone], &Daily { start, end, weekdays }, from, to);
    }
}
