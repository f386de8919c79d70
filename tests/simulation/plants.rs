//! Planted bugs: what a process would do if it were wrong, done on its way to the cluster.

use std::sync::Arc;
use std::time::Duration;

use concertina::embedded::{Answer, Exchange, Server};
use serde_json::Value;

use crate::ledger::Subject;
use crate::plan::Class;
use crate::way::Way;

macro_rules! plants {
    ($($name:ident: $text:literal,)*) => {
        /// A planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Plant { $($name,)* }

        impl Plant {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

plants! {
    BlindRetry: "blind-retry",
    LateWrite: "late-write",
    OverflowWraps: "overflow-wraps",
}

impl Plant {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|plant| plant.name() == name)
    }

    /// Does to a request what the bug would.
    pub(crate) async fn on_the_way(self, way: Arc<Way>, exchange: Exchange, server: Server) -> Answer {
        let subject = Subject::of(&exchange);
        match self {
            Self::BlindRetry if subject.class == Class::ScalePut => {
                let first = Arc::clone(&way).far(exchange.clone(), server.clone()).await;
                if !matches!(first, Answer::Broken) {
                    return first;
                }
                way.far(without_version(exchange), server).await
            }
            Self::LateWrite if subject.class == Class::ScalePut => {
                // It goes out, whatever becomes of the process.
                let late = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(11)).await;
                    way.far(exchange, server).await
                });
                late.await.unwrap_or(Answer::Broken)
            }
            Self::OverflowWraps if subject.class == Class::ScalePut => {
                let wrapped = with_body(exchange, |body| {
                    let replicas = body["spec"]["replicas"].as_i64().unwrap_or(0);
                    body["spec"]["replicas"] =
                        if replicas >= 10 { i64::from(i32::MIN) + replicas } else { replicas }.abs().into();
                });
                way.far(wrapped, server).await
            }
            _ => way.far(exchange, server).await,
        }
    }
}

fn without_version(exchange: Exchange) -> Exchange {
    with_body(exchange, |body| {
        if let Some(meta) = body["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
    })
}

fn with_body(exchange: Exchange, change: impl FnOnce(&mut Value)) -> Exchange {
    let Ok(mut body) = serde_json::from_slice(&exchange.body) else { return exchange };
    change(&mut body);
    Exchange { body: body.to_string().into(), ..exchange }
}
