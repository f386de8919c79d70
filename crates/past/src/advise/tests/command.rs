//! The whole command: HPAs from the in-memory cluster, and a Prometheus that answers from a recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::VirtualClock;
use fake_cluster::Cluster;
use fake_cluster::pages::{PageRequest, PageResponse, PageServers};
use jiff::Timestamp;
use sources::InMemory;

use super::*;
use crate::advise::objects::Objects;
use crate::advise::report::Report;
use crate::advise::{AdviseError, answer, options};
use crate::forecast;
use crate::forecast::options::Origin;
use ::cluster::client::Clients;
use terminal::options::{cluster, parsed};
use terminal::progress::Progress;

/// A cluster and its Prometheus, at the end of the recordings.
pub(super) struct Rig {
    cluster: Cluster,
    pub(super) servers: PageServers,
    now: Timestamp,
}

/// Answers a range query from the recordings of the HPAs that it names.
fn matrix(recordings: &BTreeMap<&'static str, Recording>, request: &PageRequest) -> PageResponse {
    let field = |name: &str| {
        let found = request.fields.iter().find(|(field, _)| field == name).unwrap();
        found.1.parse::<i64>().unwrap()
    };
    let (start, end, step) = (field("start"), field("end"), field("step"));
    assert_eq!(request.path, "/api/v1/query_range");
    assert!((end - start) / step <= 11_000 && step == 60);
    let found = recordings
        .iter()
        .find(|(name, _)| request.query.contains(&format!("horizontalpodautoscaler=\"{name}\"")));
    let mut result = Vec::new();
    for column in found.into_iter().flat_map(|_| Column::ALL) {
        let name = format!("\"{}\", \"\", \"\")", column_name(column));
        let (_, recording) = found.unwrap();
        if !request.query.contains(&name) || !recording.has(column) {
            continue;
        }
        let values: Vec<_> = recording
            .known(column, 0)
            .map(|(minute, value)| (recording.time(minute + 1).as_second(), value))
            .filter(|(at, _)| (start..=end).contains(at))
            .map(|(at, value)| json!([at, value.to_string()]))
            .collect();
        result.push(json!({"metric": {"concertina_column": column_name(column)}, "values": values}));
    }
    let data = json!({"resultType": "matrix", "result": result});
    PageResponse::json(200, &json!({"status": "success", "data": data}))
}

/// The names of columns in queries, as an operator reads them there.
fn column_name(column: Column) -> &'static str {
    match column {
        Column::Usage => "usage",
        Column::LowestRequest => "lowest",
        Column::HighestRequest => "highest",
        Column::Replicas => "replicas",
        Column::Ready => "ready",
        Column::ReplicaSets => "sets",
        Column::Min => "min",
        Column::Max => "max",
        Column::Target => "target",
        Column::Memory => "memory",
        Column::Age => "age",
    }
}

impl Rig {
    pub(super) fn new(hpas: &[Value], recordings: BTreeMap<&'static str, Recording>) -> Self {
        let now = recordings.values().next().map_or(Timestamp::UNIX_EPOCH, |it| it.time(it.minutes));
        let cluster = Cluster::new(Arc::new(VirtualClock::starting_at(now)));
        for hpa in hpas {
            cluster.create(hpa.clone()).unwrap();
        }
        let servers = PageServers::default();
        servers.serve("prometheus:9090", move |request| matrix(&recordings, request));
        Self { cluster, servers, now }
    }

    pub(super) async fn run(&self, words: &[&str]) -> Result<String, AdviseError> {
        self.run_on(&[&["--prometheus", "http://prometheus:9090/"], words].concat()).await
    }

    /// Runs the command on a past that `words` name.
    pub(super) async fn run_on(&self, words: &[&str]) -> Result<String, AdviseError> {
        let options = parsed(options::command("concertina"), words, options::options).unwrap();
        let reading = cluster::at_kubectl_rate(cluster::reads_only());
        let clients = Clients::over(self.cluster.connector(), &reading).unwrap();
        let clients = options.source.files.is_empty().then_some(&clients);
        let mut out = Vec::new();
        answer(&options, clients, self.dial(), self.now, Progress::default(), &mut out).await?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// The past that a backtest replays.
    pub(super) async fn past_of(
        &self,
        options: &forecast::options::BacktestOptions,
    ) -> Result<forecast::Played, forecast::ForecastError> {
        let Origin::Hpa { name, source } = &options.origin else { panic!("{options:?}") };
        let reading = cluster::at_kubectl_rate(cluster::reads_only());
        let clients = Clients::over(self.cluster.connector(), &reading).unwrap();
        let clients = source.files.is_empty().then_some((&clients, "default"));
        Box::pin(forecast::past_of(options, name, source, clients, self.dial(), self.now)).await
    }

    fn dial(&self) -> Arc<InMemory> {
        let servers = self.servers.clone();
        Arc::new(InMemory::new(move |address: &str| servers.dial(address)))
    }
}

fn named(name: &str, past: Past) -> Value {
    let mut hpa = hpa(past);
    hpa["metadata"]["name"] = json!(name);
    hpa
}

/// `large` has too many pods at night, `new` has a past of two days, and `jobs` scales on another metric.
fn world() -> Rig {
    let past = Past { min: 10, days: 4, ..PAST };
    let large = record(past, Service::Linear, daily);
    let mut new = Recording::new(large.start, large.minutes);
    for column in Column::ALL {
        large.known(column, 2 * DAY).for_each(|(minute, value)| new.set(column, minute, value));
    }
    let mut jobs = named("jobs", past);
    jobs["spec"]["metrics"] = json!([{"type": "External", "external": {
        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}}]);
    Rig::new(&[named("large", past), named("new", past), jobs], [("large", large), ("new", new)].into())
}

#[tokio::test]
async fn command_prints_advice_patches_and_a_page() {
    let (rig, folder) = (world(), Folder::new("patches"));
    let (patches, page) = (folder.0.join("patches"), folder.0.join("page.html"));
    let flags = ["--days", "4", "--patch", patches.to_str().unwrap(), "--report", page.to_str().unwrap()];
    let text = rig.run(&flags).await.unwrap();
    assert!(text.starts_with("HPA          target %"), "{text}");
    assert!(text.contains("\nshop/large "), "{text}");
    assert!(text.contains("\nOf 3 HPAs, 1 can save "), "{text}");
    assert!(text.contains("  shop/new: 2 days of its load are known: three are needed\n"), "{text}");
    assert!(
        text.contains("  shop/jobs: only targets of cpu and of queries of KEDA can be replayed"),
        "{text}"
    );
    let mut found: Vec<_> = std::fs::read_dir(&patches).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(found.len(), 1);
    let patch = std::fs::read_to_string(found.remove(0)).unwrap();
    let command = "# kubectl patch hpa large -n shop --type merge --patch-file shop_large.yaml\n";
    assert!(patch.starts_with(command), "{patch}");
    let documents: Vec<Value> = terminal::values::documents(&patch).unwrap();
    assert!(documents[0]["spec"]["minReplicas"].as_i64().unwrap() < 10, "{patch}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>shop/large</h2>") && page.contains("class=\"advised\" d=\"M0"), "{page}");
    assert!(page.len() < 60_000, "{}", page.len());
    // The cluster is only read.
    assert!(rig.cluster.requests().entries().iter().all(|request| request.verb == "list"));
    // One query for each HPA and week.
    assert_eq!(rig.servers.requests().len(), 3);
}

#[tokio::test]
async fn files_replace_the_cluster_and_documents_have_all_rows() {
    let (rig, folder) = (world(), Folder::new("files"));
    let past = Past { min: 10, days: 4, ..PAST };
    let vpa = vpa("web-vpa", json!({}));
    let list = json!({"kind": "List", "items": [named("large", past), vpa]});
    let file = folder.0.join("hpas.yaml");
    std::fs::write(&file, list.to_string()).unwrap();
    let text = rig.run(&["-f", file.to_str().unwrap(), "-o", "json", "--days", "4"]).await.unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document["kind"], &document["totals"]["hpas"]), (&json!("AdviceReport"), &json!(1)));
    assert_eq!(document["hpas"][0]["refused"], json!({"reason": "vpa", "name": "web-vpa"}));
    let shared = json!({"finding": "sharedWithVpa", "name": "web-vpa", "resources": ["cpu"]});
    assert_eq!(document["hpas"][0]["findings"][0], shared);
    let why = document["hpas"][0]["why"].as_str().unwrap();
    assert_eq!(
        why,
        "VerticalPodAutoscaler web-vpa changes the cpu requests on which the target depends: let it control memory only"
    );
    assert!(matches!(rig.run(&["-n", "bank"]).await, Err(AdviseError::NoHpa)));
}

#[tokio::test]
async fn prometheus_without_an_answer_is_an_error() {
    let rig = world();
    rig.servers.serve("prometheus:9090", |_| {
        PageResponse::json(
            422,
            &json!({"status": "error", "errorType": "execution", "error": "too many samples"}),
        )
    });
    let error = rig.run(&["-n", "shop"]).await.unwrap_err().to_string();
    let expected = "Prometheus at http://prometheus:9090/ has no answer (--prometheus): the server refused the query: \
                    execution: too many samples";
    assert_eq!(error, expected);
    // A server that refuses weeks is asked for days.
    assert!(rig.servers.requests().len() > 3);
    // One that never answers is not asked for each of many HPAs.
    let past = Past { days: 3, ..PAST };
    let many: Vec<Value> = (0..50).map(|at| named(&format!("web-{at}"), past)).collect();
    let rig = Rig::new(&many, BTreeMap::new());
    rig.servers.serve("prometheus:9090", |_| PageResponse::json(503, &json!({})));
    let error = rig.run(&[]).await.unwrap_err().to_string();
    assert!(error.ends_with("the server answers 503 Service Unavailable"), "{error}");
    assert!(rig.servers.requests().len() <= 12, "{}", rig.servers.requests().len());
    // What Prometheus lacks is named.
    let rig = world();
    rig.servers.serve("prometheus:9090", |_| PageResponse::matrix(&[]));
    let text = rig.run(&["--days", "3"]).await.unwrap();
    assert!(text.contains("  shop/large: Prometheus has no container_cpu_usage_seconds_total"), "{text}");
}

#[tokio::test]
async fn backtest_reads_the_past_of_an_hpa() {
    let rig = world();
    let run = async |name: &'static str| {
        let words = ["backtest", name, "-n", "shop", "--prometheus", "http://prometheus:9090", "--days", "4"];
        let words = [&words[..], &["-o", "json"]].concat();
        let options = parsed(forecast::options::command("concertina"), &words, forecast::options::options);
        let options = options.unwrap();
        let played = rig.past_of(&options).await?;
        let mut out = Vec::new();
        forecast::run_to_end(&options, Some(played), &mut out)?;
        Ok::<Value, forecast::ForecastError>(serde_json::from_slice(&out).unwrap())
    };
    let document = run("large").await.unwrap();
    // Two of four days are judged, with ten pods at least.
    assert_eq!(document["choice"]["judgedFrom"], "2026-11-04T00:00:00Z");
    assert!(document["runs"][0]["podHours"].as_f64().unwrap() > 480.0, "{document}");
    for (name, expected) in [
        ("new", "HPA shop/new: 2 days of its load are known: three are needed"),
        ("old", "there is no HPA shop/old: pass its namespace with -n"),
    ] {
        assert_eq!(run(name).await.unwrap_err().to_string(), expected);
    }
}

#[test]
fn file_beyond_its_limit_is_refused() {
    let folder = Folder::new("large");
    let path = folder.0.join("hpas.yaml");
    std::fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    let error = Objects::read_files(std::slice::from_ref(&path), None).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read {}: it has more than 64 MiB", path.display()));
}

#[test]
fn impossible_flags_are_refused() {
    for (words, expected) in [
        ("", "--prometheus"),
        ("--prometheus http://a --record b", "cannot be used with"),
        ("--record b --prometheus-ca c", "cannot be used with"),
        ("--prometheus ftp://a", "must be http:// or https://"),
        ("--prometheus http://a --days 2", "--days"),
        ("--prometheus http://a --prometheus-token-file t", "a token is only sent over https://"),
        ("--prometheus http://a -f - -f -", "standard input can be read only once"),
    ] {
        let words: Vec<_> = words.split_whitespace().collect();
        let error = parsed(options::command("concertina"), &words, options::options).unwrap_err();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn schema_is_published() {
    crate::schemas::check::<Report>("advise");
}
