//! A plain JSON client of the API server. Tests write requests as paths and JSON, so the client uses no Kubernetes
//! types.

use std::time::Duration;

use http::{Method, Request, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::outcome::{Context, Failure, Outcome};

/// Media types of requests and responses.
pub(crate) mod media {
    pub(crate) const JSON: &str = "application/json";
    pub(crate) const MERGE: &str = "application/merge-patch+json";
    pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
    pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
    /// The type that kubectl accepts when it prints a table.
    pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
}

/// The maximum duration of a request, including a watch.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct Rest {
    client: Client,
}

/// A response of the server.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Answer {
    /// The body as JSON. A body that is not JSON becomes a JSON string.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| Value::String(self.text.clone()))
    }

    /// The body as one JSON value per line, the format of a watch.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Rest {
    /// Makes a client that does not verify the certificate of the server.
    pub(crate) fn new(base_url: &str, token: &str) -> Outcome<Self> {
        let mut config = kube::Config::new(base_url.parse::<Uri>()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(token.to_owned().into());
        config.read_timeout = Some(TIMEOUT);
        // Tests check every response, including refusals.
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)? })
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Outcome<Answer> {
        let mut request = Request::builder().method(method.clone()).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let call = async {
            let response = self.client.send(request.body(Body::from(bytes))?).await?;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            Ok(Answer { code, text: String::from_utf8_lossy(&body).into_owned() })
        };
        tokio::time::timeout(TIMEOUT, call)
            .await
            .map_err(|_| Failure("no response in time".to_owned()))
            .and_then(|answer: Outcome<Answer>| answer)
            .context(format!("{method} {path}"))
    }

    async fn send_ok(&self, method: Method, path: &str, media: &str, body: Option<&Value>) -> Outcome<Value> {
        let answer = self.send(method.clone(), path, &[("content-type", media)], body).await?;
        if answer.code < 300 {
            Ok(answer.json())
        } else {
            Err(Failure(format!("{method} {path}: {} {}", answer.code, answer.text.trim())))
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Outcome<Value> {
        self.send_ok(Method::GET, path, media::JSON, None).await
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Outcome<Value> {
        self.send_ok(Method::POST, path, media::JSON, Some(body)).await
    }

    /// Creates the objects of a manifest, and returns them. In the manifest, a line of dashes precedes each object.
    pub(crate) async fn create_all(&self, manifest: &str) -> Outcome<Vec<Value>> {
        let mut objects = Vec::new();
        for document in manifest.split("---\n").skip(1) {
            let object: Value = serde_saphyr::from_str(document).context(document)?;
            self.create(&collection(&object), &object).await?;
            objects.push(object);
        }
        Ok(objects)
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Outcome<Value> {
        self.send_ok(Method::PATCH, path, media::MERGE, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Outcome<Value> {
        self.send_ok(Method::DELETE, path, media::JSON, None).await
    }

    /// Deletes without a grace period. A missing object is not an error.
    pub(crate) async fn delete_now(&self, path: &str) -> Outcome {
        let body = serde_json::json!({"gracePeriodSeconds": 0});
        let answer = self.send(Method::DELETE, path, &[("content-type", media::JSON)], Some(&body)).await?;
        match answer.code {
            0..300 | 404 => Ok(()),
            code => Err(Failure(format!("DELETE {path}: {code} {}", answer.text.trim()))),
        }
    }

    pub(crate) async fn list(&self, path: &str) -> Outcome<Vec<Value>> {
        match self.get(path).await?.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Err(Failure(format!("GET {path}: not a list"))),
        }
    }
}

/// The path of the collection for objects of the same kind and namespace.
pub(crate) fn collection(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let resource = format!("{}s", text("/kind").unwrap_or_default().to_lowercase());
    let version = text("/apiVersion").unwrap_or_default();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match text("/metadata/namespace") {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{resource}"),
    }
}

/// The conditions of an HPA as lines `Type=Status Reason: message`, in their order.
pub(crate) fn conditions(hpa: &Value) -> Vec<String> {
    let all = hpa.pointer("/status/conditions").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .map(|condition| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            format!("{}={} {}: {}", text("type"), text("status"), text("reason"), text("message"))
        })
        .collect()
}
