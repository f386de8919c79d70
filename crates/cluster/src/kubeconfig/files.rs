//! Locates, reads and merges kubeconfig files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError as ParseError};

use super::KubeconfigError;

/// The kubeconfig files that were read, in order of precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(pub Vec<PathBuf>);

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}

/// Reads one file, which must exist.
pub(super) fn read_one(path: &Path) -> Result<(Files, Kubeconfig), KubeconfigError> {
    let file = read(path).map_err(|error| error.named(path, "--kubeconfig"))?;
    Ok((Files(vec![path.to_owned()]), file))
}

/// Reads the files in `KUBECONFIG`, or `~/.kube/config` if the variable is unset or empty. Missing files are skipped.
/// For each name of a context, cluster or user, the first file with that name takes precedence.
pub(super) fn read_usual(
    listed: Option<&OsString>,
    home: Option<&Path>,
) -> Result<(Files, Kubeconfig), KubeconfigError> {
    let (origin, paths) = match listed.filter(|list| !list.is_empty()) {
        Some(list) => ("KUBECONFIG", std::env::split_paths(list).collect()),
        None => {
            ("the home directory", home.map(|home| home.join(".kube").join("config")).into_iter().collect())
        }
    };
    let paths: Vec<PathBuf> = paths;
    let (mut files, mut merged) = (Files::default(), Kubeconfig::default());
    for path in paths {
        if path.as_os_str().is_empty() || files.0.contains(&path) {
            continue;
        }
        match read(&path) {
            Ok(file) => {
                let not_valid =
                    |error: ParseError| Failure::NotValid(format!(": {error}")).named(&path, origin);
                merged = merged.merge(file).map_err(not_valid)?;
                files.0.push(path);
            }
            Err(Failure::Unreadable(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.named(&path, origin)),
        }
    }
    Ok((files, merged))
}

enum Failure {
    Unreadable(Error),
    NotValid(String),
}

impl Failure {
    fn named(self, path: &Path, origin: &'static str) -> KubeconfigError {
        let path = path.to_owned();
        match self {
            Self::Unreadable(source) => KubeconfigError::Unreadable { path, origin, source },
            Self::NotValid(at) => KubeconfigError::NotValid { path, at },
        }
    }
}

fn read(path: &Path) -> Result<Kubeconfig, Failure> {
    let text = text(fs::read(path).map_err(Failure::Unreadable)?).map_err(Failure::Unreadable)?;
    let mut file = Kubeconfig::from_yaml(&text).map_err(|error| {
        // The library's error text quotes the file, so only the position is kept.
        let at = if let ParseError::Parse(error) = error { error.location() } else { None };
        let at = at.map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        Failure::NotValid(at.unwrap_or_default())
    })?;
    let is_foreign = |value: &Option<String>, expected| {
        value.as_ref().is_some_and(|value| !value.is_empty() && value != expected)
    };
    if is_foreign(&file.kind, "Config") || is_foreign(&file.api_version, "v1") {
        return Err(Failure::NotValid(": it is not of apiVersion v1 and kind Config".to_owned()));
    }
    (file.kind, file.api_version) = (None, None);
    unique("context", file.contexts.iter().map(|named| &named.name))?;
    unique("cluster", file.clusters.iter().map(|named| &named.name))?;
    unique("user", file.auth_infos.iter().map(|named| &named.name))?;

    empty_is_none(&mut file.current_context);
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    file.contexts.iter_mut().filter_map(|named| named.context.as_mut()).for_each(tidy_context);
    file.clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
        .for_each(|it| tidy_cluster(it, folder));
    file.auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut())
        .for_each(|it| tidy_user(it, folder));
    Ok(file)
}

/// Decodes UTF-8, or UTF-16 with a byte order mark, which editors on Windows write.
fn text(bytes: Vec<u8>) -> Result<String, Error> {
    let wide = |rest: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.as_chunks().0.iter().copied().map(read).collect();
        String::from_utf16(&units).ok()
    };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| Error::new(ErrorKind::InvalidData, "it is not text"))
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Failure::NotValid(format!(": it has the {kind} {name:?} twice")));
        }
    }
    Ok(())
}

/// Replaces an empty text with `None`. In a kubeconfig file, an empty text means that the value is not set.
fn empty_is_none(text: &mut Option<String>) {
    if text.as_ref().is_some_and(String::is_empty) {
        *text = None;
    }
}

/// Resolves a path relative to the folder of its kubeconfig file.
fn resolve(path: &mut Option<String>, folder: &Path) {
    empty_is_none(path);
    if let Some(path) = path
        && Path::new(path).is_relative()
        && let Some(resolved) = folder.join(&*path).components().collect::<PathBuf>().to_str()
    {
        resolved.clone_into(path);
    }
}

fn tidy_context(context: &mut Context) {
    empty_is_none(&mut context.user);
    empty_is_none(&mut context.namespace);
}

fn tidy_cluster(cluster: &mut Cluster, folder: &Path) {
    for text in [
        &mut cluster.server,
        &mut cluster.certificate_authority_data,
        &mut cluster.proxy_url,
        &mut cluster.tls_server_name,
    ] {
        empty_is_none(text);
    }
    resolve(&mut cluster.certificate_authority, folder);
}

fn tidy_user(user: &mut AuthInfo, folder: &Path) {
    use secrecy::ExposeSecret;
    for text in [
        &mut user.username,
        &mut user.client_certificate_data,
        &mut user.impersonate,
        &mut user.impersonate_uid,
    ] {
        empty_is_none(text);
    }
    for secret in [&mut user.password, &mut user.token, &mut user.client_key_data] {
        secret.take_if(|secret| secret.expose_secret().is_empty());
    }
    for path in [&mut user.token_file, &mut user.client_certificate, &mut user.client_key] {
        resolve(path, folder);
    }
    if let Some(exec) = &mut user.exec {
        empty_is_none(&mut exec.command);
        empty_is_none(&mut exec.api_version);
        // A command without a separator is found on the PATH.
        if exec.command.as_ref().is_some_and(|command| command.contains(MAIN_SEPARATOR)) {
            resolve(&mut exec.command, folder);
        }
    }
}
