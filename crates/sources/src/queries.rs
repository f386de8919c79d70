//! The parsed queries of policies. A query is parsed once for each namespace, not in each sync.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use promql::{Query, QueryError};

/// Maximum bytes of all parsed queries. Beyond it, queries are parsed in each sync.
const MAX_BYTES: usize = 16 << 20;
/// The bytes of an entry in addition to the text of its query.
const ENTRY: usize = 256;

/// Parsed queries, each of which lives as long as a policy has its text.
#[derive(Debug, Default)]
pub(crate) struct ParsedQueries {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Keyed by the namespace and the address of the text in the policy. The entry holds a weak reference, so no other
    /// text gets this address.
    entries: BTreeMap<(usize, Arc<str>), Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    text: Weak<str>,
    parsed: Result<Arc<Query>, QueryError>,
    bytes: usize,
}

impl ParsedQueries {
    /// Returns the parsed form of a query for a namespace.
    pub(crate) fn get(
        &self,
        text: &Arc<str>,
        namespace: &Arc<str>,
        parse: impl FnOnce() -> Result<Query, QueryError>,
    ) -> Result<Arc<Query>, QueryError> {
        let key = (Arc::as_ptr(text).addr(), Arc::clone(namespace));
        if let Some(entry) = self.kept.lock().entries.get(&key) {
            return entry.parsed.clone();
        }
        let parsed = parse().map(Arc::new);
        // A weak reference keeps the memory of the text.
        let bytes = ENTRY + text.len() + parsed.as_ref().map_or(0, |query| query.template().len());
        let entry = Entry { text: Arc::downgrade(text), parsed: parsed.clone(), bytes };
        let mut kept = self.kept.lock();
        if kept.bytes + bytes > MAX_BYTES {
            kept.sweep();
        }
        if kept.bytes + bytes <= MAX_BYTES {
            kept.bytes += bytes;
            kept.entries.insert(key, entry);
        }
        parsed
    }

    /// Drops the queries whose policies are gone.
    pub(crate) fn sweep(&self) {
        self.kept.lock().sweep();
    }
}

impl Kept {
    fn sweep(&mut self) {
        self.entries.retain(|_, entry| entry.text.strong_count() > 0);
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_parsed_once_until_its_policy_is_gone() {
        let (queries, shop): (_, Arc<str>) = (ParsedQueries::default(), "shop".into());
        let parsed = std::cell::Cell::new(0);
        let get = |text: &Arc<str>, namespace: &Arc<str>| {
            let parse = || {
                parsed.set(parsed.get() + 1);
                Query::parse(text, None)
            };
            queries.get(text, namespace, parse).map(|query| query.template().to_owned())
        };
        let (first, second): (Arc<str>, Arc<str>) = ("up".into(), "up{".into());
        for _ in 0..3 {
            assert_eq!(get(&first, &shop).as_deref(), Ok("up"));
            assert!(get(&second, &shop).is_err());
            queries.sweep();
        }
        assert_eq!(parsed.get(), 2);
        assert!(get(&first, &"bank".into()).is_ok());
        assert_eq!(parsed.get(), 3);
        drop(first);
        queries.sweep();
        let kept = queries.kept.lock();
        assert_eq!((kept.entries.len(), kept.bytes), (1, ENTRY + 3));
    }

    #[test]
    fn bytes_of_parsed_queries_are_bounded() {
        let (queries, shop): (_, Arc<str>) = (ParsedQueries::default(), "shop".into());
        let text = format!("up{{a=\"{}\"}}", "b".repeat(16_000));
        let texts: Vec<Arc<str>> = (0..1_200).map(|_| text.as_str().into()).collect();
        let add = |text: &Arc<str>| assert!(queries.get(text, &shop, || Query::parse("up", None)).is_ok());
        texts.iter().for_each(add);
        assert!(queries.kept.lock().bytes <= MAX_BYTES);
        assert!((1_000..1_100).contains(&queries.kept.lock().entries.len()));
        // The next query takes the place of those whose policies are gone.
        drop(texts);
        add(&text.as_str().into());
        assert_eq!(queries.kept.lock().entries.len(), 1);
    }
}
