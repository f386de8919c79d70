//! The annotations of `examples/policies`.

use std::path::Path;

use super::*;

/// The examples by name, each with its expected state at some times.
const EXAMPLES: [(&str, &[(&str, &str)]); 8] = [
    (
        "sale-weekend",
        &[
            ("2026-11-26T21:59:59Z", "no mode and no schedule is active, next change 22:00:00Z"),
            (
                "2026-11-26T22:00:00Z",
                "minReplicas 30 (schedule warm-up until 23:00:00Z), next change 23:00:00Z",
            ),
            (
                "2026-11-26T23:00:00Z",
                "minReplicas 50 (schedule sale until 2026-11-29 23:00:00Z), maxReplicas 120 (schedule sale until \
                 2026-11-29 23:00:00Z), next change 2026-11-29 23:00:00Z",
            ),
            ("2026-11-29T23:00:00Z", "no mode and no schedule is active"),
        ],
    ),
    (
        "office-hours",
        &[
            ("2026-11-23T06:59:59Z", "no mode and no schedule is active, next change 07:00:00Z"),
            (
                "2026-11-23T07:00:00Z",
                "minReplicas 10 (schedule berlin until 18:00:00Z), next change 13:00:00Z",
            ),
            (
                "2026-11-23T18:00:00Z",
                "minReplicas 6 (schedule new-york until 2026-11-24 00:00:00Z), next change 2026-11-24 00:00:00Z",
            ),
            // Berlin has ended daylight saving time, and New York has not.
            (
                "2026-10-26T07:00:00Z",
                "minReplicas 10 (schedule berlin until 18:00:00Z), next change 12:00:00Z",
            ),
            // A Saturday.
            ("2026-11-28T12:00:00Z", "no mode and no schedule is active, next change 2026-11-30 07:00:00Z"),
        ],
    ),
    ("adapter-outage", &[(NOW, "no mode and no schedule is active")]),
    ("pending-gpu-pods", &[(NOW, "no mode and no schedule is active")]),
    ("bad-rollout", &[(NOW, "no mode and no schedule is active")]),
    (
        "pause-with-expiry",
        &[
            (NOW, "mode Paused until 2026-12-01 07:00:00Z, next change 2026-12-01 07:00:00Z"),
            ("2026-12-01T07:00:00Z", "no mode and no schedule is active"),
        ],
    ),
    ("vanished-queue", &[(NOW, "no mode and no schedule is active")]),
    ("sidecars", &[(NOW, "no mode and no schedule is active")]),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies")
}

#[tokio::test(start_paused = true)]
async fn examples_are_valid_and_do_what_they_describe() {
    for (name, states) in EXAMPLES {
        let file = examples().join(format!("{name}.yaml")).display().to_string();
        for (now, expected) in states {
            let folder = Folder::new("examples");
            let ran = run_at(now, &folder, &["check", "--offline", "--utc", &file], None).await;
            assert_eq!(ran.verdict, Ok(Verdict::Good), "{name}: {}", ran.out);
            assert!(ran.out.contains("annotation: valid\n"), "{name}: {}", ran.out);
            assert!(ran.out.ends_with(&format!("  now: {expected}\n")), "{name} at {now}: {}", ran.out);
        }
    }
}

#[test]
fn examples_are_listed_and_have_a_command() {
    let readme = std::fs::read_to_string(examples().join("../README.md")).unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(EXAMPLES.iter().any(|(example, _)| *example == name), "{name} has no test");
        assert!(readme.contains(&format!("(policies/{name}.yaml)")), "{name} is not listed");
        let text = std::fs::read_to_string(&path).unwrap();
        let command = format!("concertina.dev/policy=\"$(cat examples/policies/{name}.yaml)\"");
        assert!(text.contains(&command), "{name}");
        let scenario = std::fs::read_to_string(examples().join(format!("scenarios/{name}.yaml"))).unwrap();
        assert!(scenario.contains(&format!("file: ../{name}.yaml")), "{name}");
        files += 1;
    }
    assert_eq!(files, EXAMPLES.len());
}
