//! Kubeconfig files. Any text gives a configuration, or an error that names the file and contains no secret of the
//! file. `.ci/fuzz` limits time and memory.

#![no_main]

mod plant;

use std::path::PathBuf;
use std::sync::OnceLock;

use cluster::kubeconfig::{self, KubeconfigError};
use kube::config::Kubeconfig;
use libfuzzer_sys::fuzz_target;
use secrecy::ExposeSecret;

fuzz_target!(|input: &[u8]| {
    let path = file();
    std::fs::write(path, input).expect("failed to write the file in /dev/shm");
    let read = kubeconfig::load(Some(path), None);
    match read {
        Ok(config) => {
            assert!(matches!(config.cluster_url.scheme_str(), Some("http" | "https")));
            assert!(config.cluster_url.host().is_some_and(|host| !host.is_empty()));
        }
        Err(error) => {
            let mut message = error.to_string();
            if plant::planted("kubeconfig") && matches!(error, KubeconfigError::Credentials { .. }) {
                message.push_str(&String::from_utf8_lossy(input));
            }
            assert!(message.contains(&*path.to_string_lossy()), "{message}");
            for secret in secrets(input) {
                assert!(!message.contains(&secret), "{message}");
            }
        }
    }
});

/// Returns the path of a file in memory, which is different for each process.
fn file() -> &'static PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = PathBuf::from("/dev/shm").join(format!("concertina-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("failed to create the folder in /dev/shm");
        folder.join("config")
    })
}

/// Returns passwords, tokens and keys that cannot occur in an error by chance: they are long and occur once in the
/// file.
fn secrets(input: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(input) else { return Vec::new() };
    let Ok(parsed) = Kubeconfig::from_yaml(text) else { return Vec::new() };
    let users = parsed.auth_infos.into_iter().filter_map(|named| named.auth_info);
    let secrets = users.flat_map(|user| [user.password, user.token, user.client_key_data]);
    let secrets = secrets.flatten().map(|secret| secret.expose_secret().to_owned());
    secrets.filter(|secret| secret.len() >= 12 && text.matches(secret.as_str()).count() == 1).collect()
}
