//! A headless Chromium, driven through its DevTools pipe: JSON messages on descriptors 3 and 4, each
//! terminated by a zero byte.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The time limit of a response. A machine under load is slow.
const RESPONSE_LIMIT: Duration = Duration::from_mins(1);

/// One page in one browser.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    /// The events of the browser since the page was opened, as method and parameters.
    pub(crate) events: Vec<(String, Value)>,
    profile: PathBuf,
}

impl Browser {
    /// Starts the browser with an empty page of the given size. `CHROMIUM` may set the path of the program.
    pub(crate) async fn start(name: &str, width: u32, height: u32) -> Self {
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let profile = std::env::temp_dir().join(format!("concertina-browser-{}-{name}", std::process::id()));
        let mut child = Command::new("sh")
            // The browser reads descriptor 3 and writes descriptor 4, so the shell connects them to its input and
            // output.
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 >/dev/null 2>&1 </dev/null"#, &program])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--window-size={width},{height}"))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { child, commands, answers, session: None, last: 0, events: Vec::new(), profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach).await;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser.resize(width, height).await;
        browser
    }

    /// Opens a file and waits until it has loaded.
    pub(crate) async fn open(&mut self, file: &Path) {
        self.visit(&format!("file://{}", file.display())).await;
    }

    /// Opens an address and waits until its page has loaded.
    pub(crate) async fn visit(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url})).await;
        while !self.events.iter().any(|(method, _)| method == "Page.loadEventFired") {
            let message = self.read().await;
            self.record(message);
        }
    }

    /// Evaluates an expression in the page. Waits for the result of a promise.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Moves the pointer to a position in pixels.
    pub(crate) async fn point(&mut self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y})).await;
    }

    pub(crate) async fn click(&mut self, x: f64, y: f64) {
        self.point(x, y).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let parameters = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", parameters).await;
        }
    }

    /// Presses and releases a key, such as `Enter`.
    pub(crate) async fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key, "code": key})).await;
        }
    }

    pub(crate) async fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Emulates a medium (`screen` or `print`) and a colour scheme (`light` or `dark`).
    pub(crate) async fn emulate(&mut self, media: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": media, "features": features})).await;
    }

    /// Returns the proportional set size of the renderer processes of the browser, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let mut family = vec![self.child.id().unwrap()];
        let mut total = 0;
        let processes: Vec<(u32, u32)> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| {
                let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
                let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
                let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
                Some((id, parent))
            })
            .collect();
        while let Some(parent) = family.pop() {
            for (id, _) in processes.iter().filter(|(_, of)| *of == parent) {
                family.push(*id);
                let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
                let rollup = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
                if line.contains("--type=renderer") {
                    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
                    total += pss.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
                }
            }
        }
        total
    }

    /// Writes a picture of the page.
    pub(crate) async fn picture(&mut self, file: &str) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            picture["data"].as_str().unwrap(),
        );
        std::fs::write(file, bytes.unwrap()).unwrap();
    }

    /// Sends a DevTools command and returns its result.
    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).await.unwrap();
        loop {
            let message = self.read().await;
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.record(message);
        }
    }

    async fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        let length = tokio::time::timeout(RESPONSE_LIMIT, self.answers.read_until(0, &mut bytes));
        let length = length.await.expect("the browser does not respond").unwrap();
        assert!(length > 0, "the browser exited: is it installed? {:?}", self.child.try_wait());
        bytes.pop();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn record(&mut self, mut message: Value) {
        if let Some(method) = message["method"].as_str() {
            let method = method.to_owned();
            self.events.push((method, message["params"].take()));
        }
    }

    pub(crate) async fn stop(mut self) {
        self.session = None;
        self.call("Browser.close", json!({})).await;
        self.child.wait().await.unwrap();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
