#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs;
use std::sync::Arc;

use clock::SystemClock;

use super::*;
use crate::advice::file::LARGEST;
use crate::advice::tests::{BRIEF, decoded, hpa, report};

/// A file that is removed at the end.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("concertina-advice-{}-{name}.json", std::process::id())))
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).unwrap();
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits until a condition of the store is true, for at most a minute of virtual time.
async fn until(store: &Store, what: impl Fn(&Store) -> bool) {
    for _ in 0..60 {
        if what(store) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{:?} {:?}", store.since(None), store.advice_problem());
}

fn text(store: &Store) -> Option<String> {
    store.since(None).rows[0].advice.as_ref().map(|cell| cell.text.clone())
}

#[tokio::test(start_paused = true)]
async fn changed_file_is_read_and_a_broken_one_keeps_the_last_advice() {
    let file = TestFile::new("changed");
    let store = Store::new(Arc::new(SystemClock));
    store.put(&decoded(&hpa("web")));
    let following = tokio::spawn(follow(store.clone(), file.0.clone()));
    let named = format!("--advice {}: ", file.0.display());
    until(&store, |store| store.advice_problem().is_some_and(|problem| problem.starts_with(&named))).await;
    file.write(&report().to_string());
    until(&store, |store| text(store).as_deref() == Some(BRIEF)).await;
    assert_eq!(store.advice_problem(), None);
    for (content, problem) in [
        ("", "it is empty"),
        ("{\"kind\": ", "it is not the output of concertina advise -o json: EOF"),
        ("{\"kind\": \"Pod\", \"to\": \"2030-01-15T00:00:00Z\", \"hpas\": []}", "its kind is \"Pod\""),
    ] {
        file.write(content);
        until(&store, |store| store.advice_problem().is_some_and(|found| found.contains(problem))).await;
        assert_eq!(text(&store).as_deref(), Some(BRIEF), "{problem}");
    }
    let mut other = report();
    other["hpas"][0]["advice"]["settings"]["target"] = 70.into();
    file.write(&other.to_string());
    until(&store, |store| text(store).is_some_and(|text| text.contains("→ 70 %"))).await;
    assert_eq!(store.advice_problem(), None);
    // An HPA that changes has no advice, and a new watch of the same HPA has the advice again.
    let mut changed = hpa("web");
    changed["spec"]["maxReplicas"] = 10.into();
    store.put(&decoded(&changed));
    assert_eq!(text(&store).as_deref(), Some("changed since"));
    store.remove("shop", "web");
    store.put(&decoded(&hpa("web")));
    assert!(text(&store).unwrap().contains("→ 70 %"));
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn file_that_is_none_or_too_large_is_an_error() {
    let store = Store::new(Arc::new(SystemClock));
    let following = tokio::spawn(follow(store.clone(), std::env::temp_dir()));
    until(&store, |store| store.advice_problem().is_some_and(|found| found.ends_with("it is not a file")))
        .await;
    following.abort();
    let file = TestFile::new("large");
    fs::File::create(&file.0).unwrap().set_len(LARGEST as u64 + 1).unwrap();
    let following = tokio::spawn(follow(store.clone(), file.0.clone()));
    until(&store, |store| store.advice_problem().is_some_and(|found| found.ends_with("more than 32 MiB")))
        .await;
    following.abort();
}
