//! The way to the API server: kubeconfig, address, or the pod's own configuration.
//!
//! As in kube-controller-manager, only `--kubeconfig` and `--master` count: neither the variable `KUBECONFIG` nor
//! `~/.kube/config` is looked at. Everything that can be wrong with the files is found here, at start, and told in one
//! line that says which file or context, and what to do. Nothing of a file's content is printed: it may be a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::client::ConfigExt;
use kube::config::{InClusterError, Kubeconfig, KubeconfigError as Error};

/// Why there is no way to the API server: one line, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error("cannot read kubeconfig {}: {source}: check --kubeconfig and the permissions of the file", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("kubeconfig {} is not valid{at}: correct the file, or write it anew with kubectl config", .path.display())]
    NotValid {
        /// The file.
        path: PathBuf,
        /// Where, if known: ` at line L, column C`.
        at: String,
    },
    /// There is no current context, or it names what the file does not have.
    #[error("kubeconfig {}: {problem}: choose one with kubectl config use-context{}", .path.display(), listed(.contexts))]
    Context {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// The contexts that the file has.
        contexts: Vec<String>,
    },
    /// A certificate, key or authority in or beside the file is not usable.
    #[error("kubeconfig {}: context {context:?}: {problem}: renew the credentials of this context", .path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// The context that uses it.
        context: String,
        /// What is wrong.
        problem: String,
    },
    /// The address of the API server is none.
    #[error(
        "{origin}: {server:?} is not the address of an API server: give one such as https://10.0.0.1:6443"
    )]
    Server {
        /// Where it was found.
        origin: String,
        /// The address.
        server: String,
    },
    /// Neither flag was given and this is not a pod.
    #[error("neither --kubeconfig nor --master is given and this is not a pod ({0}): give --kubeconfig")]
    NotInCluster(String),
    /// Neither flag was given and the pod's service account is not usable.
    #[error(
        "the pod's service account is not usable ({0}): give the pod one and mount its token, or give --kubeconfig"
    )]
    ServiceAccount(String),
}

fn listed(contexts: &[String]) -> String {
    if contexts.is_empty() { String::new() } else { format!(" (there are: {})", contexts.join(", ")) }
}

/// Reads the configuration: the kubeconfig, with the server replaced by `master` if that is given too; or the server
/// alone, without credentials; or, without either, that of the pod.
pub fn load(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<kube::Config, KubeconfigError> {
    match (kubeconfig, master) {
        (Some(path), master) => from_file(path, master),
        (None, Some(master)) => Ok(kube::Config::new(server(master, "--master")?)),
        (None, None) => kube::Config::incluster_env().map_err(|error| match error {
            InClusterError::ReadEnvironmentVariable(_) => KubeconfigError::NotInCluster(
                "KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set".to_owned(),
            ),
            error => KubeconfigError::ServiceAccount(one_line(&error)),
        }),
    }
}

fn from_file(path: &Path, master: Option<&str>) -> Result<kube::Config, KubeconfigError> {
    let mut file = Kubeconfig::read_from(path).map_err(|error| match error {
        Error::ReadConfig(source, _) => KubeconfigError::Unreadable { path: path.to_owned(), source },
        Error::Parse(error) => {
            let at = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            KubeconfigError::NotValid { path: path.to_owned(), at: at.unwrap_or_default() }
        }
        _ => KubeconfigError::NotValid { path: path.to_owned(), at: String::new() },
    })?;

    let contexts = file.contexts.iter().map(|context| context.name.clone()).collect();
    let wrong = |problem, contexts| KubeconfigError::Context { path: path.to_owned(), problem, contexts };
    let Some(name) = file.current_context.clone().filter(|name| !name.is_empty()) else {
        return Err(wrong("it has no current context".to_owned(), contexts));
    };
    let context =
        file.contexts.iter().find(|context| context.name == name).and_then(|named| named.context.clone());
    let Some(context) = context else {
        return Err(wrong(format!("its current context {name:?} does not exist"), contexts));
    };
    let cluster = file.clusters.iter_mut().find(|cluster| cluster.name == context.cluster);
    let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) else {
        return Err(wrong(
            format!("the cluster {:?} of its context {name:?} does not exist", context.cluster),
            contexts,
        ));
    };
    if let Some(user) = context.user.as_deref().filter(|user| !user.is_empty())
        && !file.auth_infos.iter().any(|known| known.name == user)
    {
        return Err(wrong(format!("the user {user:?} of its context {name:?} does not exist"), contexts));
    }

    let uri = if let Some(master) = master {
        server(master, "--master")?
    } else {
        let origin = format!("kubeconfig {}: cluster {:?}", path.display(), context.cluster);
        server(cluster.server.as_deref().unwrap_or_default(), &origin)?
    };
    cluster.server = Some(uri.to_string());

    let unusable = |error: &dyn fmt::Display| KubeconfigError::Credentials {
        path: path.to_owned(),
        context: name.clone(),
        problem: one_line(error),
    };
    let config = kube::Config::try_from(file).map_err(|error| unusable(&error))?;
    // Text that holds no certificate is read as an empty list, by which no server could be trusted.
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(unusable(&"its certificate authority holds no certificate in PEM"));
    }
    // A plugin is asked for its certificate when connections are made, not now.
    if config.cluster_url.scheme_str() == Some("https") && config.auth_info.exec.is_none() {
        config.rustls_client_config().map_err(|error| unusable(&error))?;
    }
    Ok(config)
}

/// The address of a server; without a scheme it is plain HTTP, as client-go takes it.
fn server(address: &str, origin: &str) -> Result<Uri, KubeconfigError> {
    let with_scheme = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    with_scheme
        .parse::<Uri>()
        .ok()
        .filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        })
        .ok_or_else(|| KubeconfigError::Server { origin: origin.to_owned(), server: address.to_owned() })
}

/// An error of a library in one line, without a full stop.
fn one_line(error: &(impl fmt::Display + ?Sized)) -> String {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    line.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A kubeconfig file of one test, gone when the test is.
    struct File(PathBuf);

    impl File {
        fn new(test: &str, content: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("concertina-kubeconfig-{}-{test}", std::process::id()));
            fs::write(&path, content).unwrap();
            Self(path)
        }

        fn error(&self) -> String {
            let error = load(Some(&self.0), None).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(!error.contains("s3cret"), "{error}");
            error.replace(&self.0.display().to_string(), "FILE")
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: dev\n\
             contexts: [{{name: dev, context: {{cluster: one, user: me}}}}]\n\
             clusters: [{{name: one, cluster: {{{cluster}}}}}]\n\
             users: [{{name: me, user: {{{user}}}}}]\n"
        )
    }

    #[test]
    fn a_good_file_names_server_and_user() {
        let file = File::new("good", &config("server: 'http://10.0.0.1:8001'", "token: s3cret"));
        let loaded = load(Some(&file.0), None).unwrap();
        assert_eq!(loaded.cluster_url, "http://10.0.0.1:8001/");
        assert!(loaded.auth_info.token.is_some());
        let replaced = load(Some(&file.0), Some("http://10.0.0.2:80")).unwrap();
        assert_eq!(replaced.cluster_url, "http://10.0.0.2:80/");
        assert!(replaced.auth_info.token.is_some());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let missing = load(Some(Path::new("/nonexistent/config")), None).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "cannot read kubeconfig /nonexistent/config: No such file or directory (os error 2): check --kubeconfig and the \
             permissions of the file"
        );
        let folder = load(Some(&std::env::temp_dir()), None).unwrap_err();
        assert!(matches!(folder, KubeconfigError::Unreadable { .. }), "{folder}");
    }

    #[test]
    fn bad_yaml_is_told_with_its_place_and_without_its_content() {
        let file =
            File::new("yaml", "apiVersion: v1\nusers:\n- name: me\n  user: {token: s3cret, password: [}\n");
        let error = file.error();
        assert!(error.starts_with("kubeconfig FILE is not valid at line 4, column "), "{error}");
        let file = File::new("type", "users: s3cret\n");
        assert!(file.error().starts_with("kubeconfig FILE is not valid"), "{}", file.error());
    }

    #[test]
    fn a_wrong_context_is_told_with_those_that_exist() {
        let good = config("server: 'http://a'", "");
        let file = File::new("context", &good.replace("current-context: dev", "current-context: prod"));
        assert_eq!(
            file.error(),
            "kubeconfig FILE: its current context \"prod\" does not exist: choose one with kubectl config use-context (there \
             are: dev)"
        );
        let file = File::new("no-context", "");
        assert_eq!(
            file.error(),
            "kubeconfig FILE: it has no current context: choose one with kubectl config use-context"
        );
        let file = File::new("cluster", &good.replace("cluster: one", "cluster: two"));
        assert!(
            file.error().contains("the cluster \"two\" of its context \"dev\" does not exist"),
            "{}",
            file.error()
        );
        let file = File::new("user", &good.replace("user: me", "user: you"));
        assert!(
            file.error().contains("the user \"you\" of its context \"dev\" does not exist"),
            "{}",
            file.error()
        );
    }

    #[test]
    fn bad_certificates_are_told_with_their_context() {
        let server = "server: 'https://a'";
        let cases = [
            ("no-certificate", format!("{server}, certificate-authority-data: czNjcmV0"), String::new()),
            ("not-base64", format!("{server}, certificate-authority-data: '!!'"), String::new()),
            (
                "not-pem",
                format!("{server}, certificate-authority-data: czNjcmV0"),
                "client-key-data: czNjcmV0".to_owned(),
            ),
            ("no-file", format!("{server}, certificate-authority: /nonexistent/ca.crt"), String::new()),
            (
                "no-key",
                format!("{server}, insecure-skip-tls-verify: true"),
                "client-certificate-data: czNjcmV0".to_owned(),
            ),
        ];
        for (case, cluster, user) in cases {
            let file = File::new(case, &config(&cluster, &user));
            let error = file.error();
            assert!(error.starts_with("kubeconfig FILE: context \"dev\": "), "{case}: {error}");
            assert!(error.ends_with(": renew the credentials of this context"), "{case}: {error}");
        }
    }

    #[test]
    fn an_address_must_be_one() {
        for address in ["", "a b", "ftp://a", "https://"] {
            let error = load(None, Some(address)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--master: {address:?} is not the address")), "{error}");
        }
        assert_eq!(load(None, Some("localhost:8080")).unwrap().cluster_url, "http://localhost:8080/");
        let file = File::new("server", &config("server: ''", ""));
        assert!(
            file.error().starts_with("kubeconfig FILE: cluster \"one\": \"\" is not the address"),
            "{}",
            file.error()
        );
    }

    #[test]
    fn without_flags_outside_a_pod_the_flag_to_give_is_named() {
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return;
        }
        let error = load(None, None).unwrap_err().to_string();
        assert_eq!(
            error,
            "neither --kubeconfig nor --master is given and this is not a pod (KUBERNETES_SERVICE_HOST or \
             KUBERNETES_SERVICE_PORT is not set): give --kubeconfig"
        );
    }
}
