use super::*;

fn text(call: &Call, code: u16, body: &str) -> String {
    ApiError::from_answer(call, StatusCode::from_u16(code).unwrap(), "text/plain", None, body.as_bytes())
        .to_string()
}

fn status(code: u16, reason: &str, message: &str) -> ApiError {
    let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
        "message": message, "code": code});
    ApiError::from_answer(
        &Call::get([]),
        StatusCode::from_u16(code).unwrap(),
        "application/json",
        None,
        body.to_string().as_bytes(),
    )
}

#[test]
fn text_errors_read_as_in_the_recordings() {
    let pods = Call::get([]).about("pods.metrics.k8s.io", "");
    let scale = Call::get([]).about("deployments", "web");
    let per_pod = Call::get([]).about("pods.custom.metrics.k8s.io", "*");
    let object = Call::get([]).about("services.custom.metrics.k8s.io", "front");
    let external = Call::get([]).about("queue_depth.external.metrics.k8s.io", "");
    for (call, code, body, expected) in [
        (
            &pods,
            500,
            "boom\n",
            "an error on the server (\"boom\") has prevented the request from succeeding (get pods.metrics.k8s.io)",
        ),
        (
            &pods,
            502,
            "bad gateway\n",
            "an error on the server (\"bad gateway\") has prevented the request from succeeding (get pods.metrics.k8s.io)",
        ),
        (&pods, 403, "not for you\n", "not for you (get pods.metrics.k8s.io)"),
        (
            &pods,
            503,
            "service unavailable\n",
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
        ),
        (
            &pods,
            404,
            "404 page not found\n",
            "the server could not find the requested resource (get pods.metrics.k8s.io)",
        ),
        (
            &per_pod,
            429,
            "slow down\n",
            "the server has received too many requests and has asked us to try again later (get pods.custom.metrics.k8s.io *)",
        ),
        (&per_pod, 403, "not for you\n", "not for you (get pods.custom.metrics.k8s.io *)"),
        (
            &object,
            500,
            "boom\n",
            "an error on the server (\"boom\") has prevented the request from succeeding (get services.custom.metrics.k8s.io front)",
        ),
        (
            &external,
            401,
            "Unauthorized\n",
            "the server has asked for the client to provide credentials (get queue_depth.external.metrics.k8s.io)",
        ),
        (
            &external,
            504,
            "late\n",
            "the server was unable to return a response in the time allotted, but may still be processing the request (get queue_depth.external.metrics.k8s.io)",
        ),
        (&scale, 400, "no\n", "the server rejected our request for an unknown reason (get deployments web)"),
        (&scale, 409, "twice\n", "the server reported a conflict (get deployments web)"),
        (
            &scale,
            422,
            "bad\n",
            "the server rejected our request due to an error in our request (get deployments web)",
        ),
        (
            &scale,
            418,
            "teapot\n",
            "the server responded with the status code 418 but did not return more information (get deployments web)",
        ),
    ] {
        assert_eq!(text(call, code, body), expected);
    }
}

#[test]
fn status_error_keeps_its_message_and_reason() {
    let error = status(500, "InternalError", "Internal error occurred: etcdserver: request timed out");
    assert_eq!(error.to_string(), "Internal error occurred: etcdserver: request timed out");
    assert!(error.is_transient() && error.outcome_unknown());
    assert!(status(409, "Conflict", "changed").is_conflict());
    assert!(!status(409, "AlreadyExists", "exists").is_conflict());
    assert!(status(410, "Expired", "too old").is_gone());
    assert!(status(403, "Forbidden", "x because it is being terminated").is_namespace_terminating());
    assert!(!status(403, "Forbidden", "no").is_transient());
}

#[test]
fn json_other_than_a_status_is_reported_as_unknown() {
    let call = Call::get([]).about("pods.metrics.k8s.io", "");
    let error = ApiError::from_answer(
        &call,
        StatusCode::INTERNAL_SERVER_ERROR,
        "application/json",
        None,
        b"{\"a\":1}",
    );
    assert_eq!(
        error.to_string(),
        "an error on the server (\"unknown\") has prevented the request from succeeding (get pods.metrics.k8s.io)"
    );
}

#[test]
fn long_text_errors_are_truncated() {
    let text = text(&Call::get([]), 500, &"x".repeat(100_000));
    assert!(text.len() < MAX_ERROR_TEXT + 100);
}

#[test]
fn same_cause_at_another_address_is_the_same_trouble() {
    let refused = |url: &str, message: &str| ApiError::Connect {
        op: "Get".to_owned(),
        url: url.to_owned(),
        message: message.to_owned(),
    };
    assert!(
        refused("http://a/?timeout=1", "refused").has_same_cause(&refused("http://a/?timeout=2", "refused"))
    );
    assert!(!refused("http://a/", "refused").has_same_cause(&refused("http://a/", "no route")));
    assert!(status(403, "Forbidden", "x").has_same_cause(&status(403, "Forbidden", "x")));
    assert!(!status(403, "Forbidden", "x").has_same_cause(&status(403, "Forbidden", "y")));
}

#[test]
fn server_texts_are_truncated_at_a_character_boundary() {
    let error = status(403, &"r".repeat(1 << 20), &"ü".repeat(1 << 20));
    let ApiError::Status { reason, message, .. } = &error else { panic!("{error}") };
    assert_eq!((reason.len(), message.len()), (256, 16 << 10));
    let odd = DecodeError::new(format!("x{}", "ü".repeat(1 << 20)));
    assert_eq!(odd.message.len(), (16 << 10) - 1);
}

#[test]
fn error_without_a_response_names_the_cause_of_an_earlier_attempt() {
    let (op, url) = ("Get".to_owned(), "https://api/x".to_owned());
    let connect =
        |message: &str| ApiError::Connect { op: op.clone(), url: url.clone(), message: message.to_owned() };
    let eof = ApiError::Transport { op: op.clone(), url: url.clone(), message: "unexpected EOF".to_owned() };
    assert_eq!(
        connect("dial tcp 10.0.0.1:443: connect: connection refused").after(&eof).to_string(),
        "Get \"https://api/x\": dial tcp 10.0.0.1:443: connect: connection refused \
         - error from a previous attempt: unexpected EOF"
    );
    assert_eq!(connect("unexpected EOF").after(&eof).to_string(), eof.to_string());
    let timeout = ApiError::Timeout { op, url };
    assert_eq!(timeout.clone().after(&eof), timeout);
}
