//! The files of the page, compiled into the program.

/// A file with its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asset {
    /// The path after the token. Empty for the page itself.
    pub(crate) path: &'static str,
    /// `Content-Type`.
    pub(crate) kind: &'static str,
    /// The content.
    pub(crate) body: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: [Asset; 12] = [
    Asset { path: "", kind: HTML, body: include_str!("../assets/index.html") },
    Asset { path: "console.css", kind: CSS, body: include_str!("../assets/console.css") },
    Asset { path: "controller.css", kind: CSS, body: include_str!("../assets/controller.css") },
    Asset { path: "main.js", kind: SCRIPT, body: include_str!("../assets/main.js") },
    Asset { path: "view.js", kind: SCRIPT, body: include_str!("../assets/view.js") },
    Asset { path: "list.js", kind: SCRIPT, body: include_str!("../assets/list.js") },
    Asset { path: "one.js", kind: SCRIPT, body: include_str!("../assets/one.js") },
    Asset { path: "controller.js", kind: SCRIPT, body: include_str!("../assets/controller.js") },
    Asset { path: "events.js", kind: SCRIPT, body: include_str!("../assets/events.js") },
    Asset { path: "timeline.js", kind: SCRIPT, body: include_str!("../assets/timeline.js") },
    Asset { path: "whatif.js", kind: SCRIPT, body: include_str!("../assets/whatif.js") },
    Asset { path: "dom.js", kind: SCRIPT, body: include_str!("../assets/dom.js") },
];

/// Returns the file at a path.
pub(crate) fn find(path: &str) -> Option<Asset> {
    ASSETS.into_iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::ASSETS;

    #[test]
    fn page_is_small_and_has_no_inline_code() {
        let size: usize = ASSETS.iter().map(|asset| asset.body.len()).sum();
        assert!(size <= 300 << 10, "{size} bytes");
        for asset in ASSETS {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "style=",
                "http://",
                "https://",
            ] {
                let is_namespace = |at: usize| asset.body[at..].starts_with("http://www.w3.org/2000/svg");
                let found = asset.body.match_indices(forbidden).any(|(at, _)| !is_namespace(at));
                assert!(!found, "{}: {forbidden}", asset.path);
            }
        }
    }
}
