//! The past of HPAs in saved answers of the decisions API.

use std::path::Path;

use backtest::number::ceil_to_count;

use super::command::Rig;
use super::*;
use crate::advise::outcome::Refusal;
use crate::advise::record::Records;
use crate::forecast;

/// A recorded minute, which is a sync: its count, its ready pods, and the ratio to the target.
struct Sync {
    count: i32,
    ready: i32,
    ratio: f64,
}

/// An answer of the decisions API after some syncs, without the entries before `start`. An entry ends when the count
/// changes, and after ten syncs.
fn answer(start: usize, syncs: &[Sync], target: &Value) -> Value {
    let documented = include_str!("../../../../../docs/reference/decisions.json");
    let mut list: Value = serde_json::from_str(documented).unwrap();
    let template = list["decisions"][0].take();
    let time = |sync: usize| {
        let first: jiff::Timestamp = "2026-11-02T00:00:30Z".parse().unwrap();
        json!(first + jiff::SignedDuration::from_mins(i64::try_from(sync).unwrap()))
    };
    let mut decisions = Vec::new();
    let mut first = 0;
    for last in 0..syncs.len() {
        let ends =
            syncs.get(last + 1).is_none_or(|next| next.count != syncs[last].count || last >= first + 9);
        if !ends {
            continue;
        }
        let range = || syncs[first..=last].iter().map(|sync| sync.ratio);
        let mut entry = template.clone();
        (entry["firstAt"], entry["lastAt"], entry["syncs"]) =
            (time(first), time(last), json!(last - first + 1));
        (entry["from"], entry["to"]) = (json!(syncs[last].count), json!(syncs[last].count));
        entry["ratios"] = json!([{
            "metric": "cpu", "lowest": range().fold(f64::MAX, f64::min), "highest": range().fold(0.0, f64::max)}]);
        let explanation = &mut entry["explanation"];
        (explanation["current"], explanation["min"], explanation["max"]) =
            (json!(syncs[last].count), json!(10), json!(50));
        explanation["statusReplicas"] = json!(syncs[last].count);
        let reading = &mut explanation["metrics"][0]["valid"];
        (reading["ratio"], reading["target"]) = (json!(syncs[last].ratio), target.clone());
        reading["pods"] = json!([]);
        reading["unlisted"] = json!([{"group": "ready", "pods": syncs[last].ready}]);
        if first >= start {
            decisions.insert(0, entry);
        }
        first = last + 1;
    }
    list["metadata"] = json!({"namespace": "shop", "name": "web", "uid": "7"});
    list["decisions"] = json!(decisions);
    list
}

fn syncs(recording: &Recording) -> Vec<Sync> {
    let sync = |minute: usize| {
        let at = |column| recording.at(column, minute).unwrap();
        let (count, ready) = (ceil_to_count(at(Column::Replicas)), ceil_to_count(at(Column::Ready)));
        // A percentage is a whole number.
        let percent = (100.0 * at(Column::Usage) / 0.5 / f64::from(ready)).floor();
        Sync { count, ready, ratio: percent / 50.0 }
    };
    (0..recording.minutes).map(sync).collect()
}

fn write(path: &Path, answers: &[Value]) {
    std::fs::write(path, answers.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).unwrap();
}

/// Pasts of records: four days in one file, and in two that share two days, of which one has two answers.
#[tokio::test]
async fn record_has_the_load_of_each_entry() {
    let past = Past { min: 10, ..PAST };
    let recorded = record(past, Service::Linear, daily);
    let syncs = syncs(&recorded);
    let target = json!({"percent": 50});
    let folder = Folder::new("record");
    let (one, many, hpas) = (folder.0.join("one"), folder.0.join("many"), folder.0.join("hpa.yaml"));
    for folder in [&one, &many] {
        std::fs::create_dir_all(folder).unwrap();
    }
    write(&one.join("web.json"), &[answer(0, &syncs, &target)]);
    let saved = |from: usize, to: usize| answer(from, &syncs[..to], &target);
    write(&many.join("a.json"), &[saved(0, 2 * DAY), saved(DAY, 3 * DAY)]);
    write(&many.join("b.jsonl"), &[saved(2 * DAY, 4 * DAY)]);
    write(&many.join("notes.txt"), &[json!("no record")]);
    let read = |path: &Path| {
        let records = Records::read(&[path.to_owned()]).unwrap();
        records.recording(&Hpa::new(&hpa(past)), records.end().unwrap(), 4).unwrap()
    };
    let found = read(&one);
    assert!(found == read(&many));
    // No load is missed, and each is known within that of its entry.
    let (load, usual) = (found.load().unwrap(), recorded.load().unwrap());
    assert!(load.days() > 3.9 && load.cores().is_none(), "{}", load.days());
    let shares: Vec<f64> = (load.series.loads.iter().zip(&usual.series.loads))
        .filter_map(|(found, usual)| Some((*found)? / (*usual)?))
        .collect();
    assert!(shares.iter().all(|share| (0.95..1.6).contains(share)), "{shares:?}");
    std::fs::write(&hpas, hpa(past).to_string()).unwrap();
    let rig = Rig::new(&[], [].into());
    let words =
        ["--record", many.to_str().unwrap(), "-f", hpas.to_str().unwrap(), "--days", "4", "-o", "json"];
    let document: Value = serde_json::from_str(&rig.run_on(&words).await.unwrap()).unwrap();
    assert_eq!(document["to"], "2026-11-06T00:00:00Z");
    let row = &document["hpas"][0];
    assert!(row["advice"]["settings"]["minReplicas"].as_i64().unwrap() < 10, "{row}");
    assert_eq!((&row["advice"]["sureness"], row.get("request")), (&json!("low"), None));
    let lacked = "rollouts and cpu requests: the record has none, so check that none changed";
    assert_eq!(document["lacked"], json!([lacked]));
    assert!(rig.servers.requests().is_empty());
    // The backtest has the same load.
    let words = ["backtest", "web", "-n", "shop", "--days", "4", "--record", one.to_str().unwrap()];
    let words = [&words[..], &["-f", hpas.to_str().unwrap()]].concat();
    let options = parsed(forecast::options::command("concertina"), &words, forecast::options::options);
    let options = options.unwrap();
    let played = rig.past_of(&options).await.unwrap();
    assert_eq!(played.series, load.series);
}

#[test]
fn load_that_may_be_a_shortage_is_unknown() {
    let past = Past { min: 10, ..PAST };
    let load = |ratios: [f64; 2]| {
        let syncs = ratios.map(|ratio| Sync { count: 10, ready: 8, ratio });
        let folder = Folder::new("range");
        write(&folder.0.join("web.json"), &[answer(0, &syncs, &json!({"percent": 50}))]);
        let records = Records::read(std::slice::from_ref(&folder.0)).unwrap();
        let recording = records.recording(&Hpa::new(&hpa(past)), records.end().unwrap(), 3).unwrap();
        recording.at(Column::Usage, recording.minutes - 1)
    };
    // Pods of eight are used by 60 % at most, by 80 to 90 %, and by 40 to 90 %.
    assert_eq!(load([0.2, 1.2]), Some(f64::from(4.8_f32)));
    assert_eq!(load([1.6, 1.8]), Some(f64::from(7.2_f32)));
    assert_eq!(load([0.8, 1.8]), None);
}

#[test]
fn record_without_the_past_of_an_hpa_has_a_reason() {
    let folder = Folder::new("record-lacks");
    let file = folder.0.join("web.json");
    let syncs = [Sync { count: 10, ready: 10, ratio: 1.0 }];
    let why = |hpa: &Value, target: &Value| {
        write(&file, &[answer(0, &syncs, target)]);
        let records = Records::read(std::slice::from_ref(&file)).unwrap();
        let found =
            records.recording(&Hpa::new(hpa), records.end().unwrap(), 3).and_then(|found| found.load());
        found.unwrap_err()
    };
    let (percent, web) = (json!({"percent": 50}), hpa(PAST));
    assert!(matches!(why(&web, &percent), Refusal::TooShort { .. }));
    let mut other = web.clone();
    other["metadata"]["uid"] = json!("8");
    assert_eq!(why(&other, &percent).to_string(), "the record has no decision");
    let mut in_cores = web.clone();
    in_cores["spec"]["metrics"][0]["resource"]["target"] =
        json!({"type": "AverageValue", "averageValue": "1"});
    let expected = "the record has no cpu request, which a target in cores needs";
    assert_eq!(why(&in_cores, &percent).to_string(), expected);
    let found = why(&web, &json!({"milliPerPod": 250}));
    assert_eq!(found.to_string(), "the record has no reading of its metric");
    for (text, expected) in
        [("{}", "it is no DecisionList: missing field"), ("no", "it is no DecisionList: ")]
    {
        std::fs::write(&file, text).unwrap();
        let error = Records::read(std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {}: {expected}", file.display())), "{error}");
    }
    let absent = folder.0.join("absent");
    assert!(Records::read(&[absent]).is_err());
}
