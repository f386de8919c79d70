mod flags;

use std::fs;

use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::*;

/// A kubeconfig file for one test, deleted on drop.
struct File(PathBuf);

impl File {
    fn new(test: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-kubeconfig-{}-{test}", std::process::id()));
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
fn valid_file_names_server_and_user() {
    let file = File::new("good", &config("server: 'http://10.0.0.1:8001'", "token: s3cret"));
    let loaded = load(Some(&file.0), None).unwrap();
    assert_eq!(loaded.cluster_url, "http://10.0.0.1:8001/");
    assert!(loaded.auth_info.token.is_some());
    let replaced = load(Some(&file.0), Some("http://10.0.0.2:80")).unwrap();
    assert_eq!(replaced.cluster_url, "http://10.0.0.2:80/");
    assert!(replaced.auth_info.token.is_some());
}

#[test]
fn unreadable_file_is_named() {
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
fn invalid_yaml_is_reported_with_position_and_without_content() {
    let file =
        File::new("yaml", "apiVersion: v1\nusers:\n- name: me\n  user: {token: s3cret, password: [}\n");
    let error = file.error();
    assert!(error.starts_with("kubeconfig FILE is not valid at line 4, column "), "{error}");
    let file = File::new("type", "users: s3cret\n");
    assert!(file.error().starts_with("kubeconfig FILE is not valid"), "{}", file.error());
}

#[test]
fn wrong_context_is_reported_with_the_available_ones() {
    let good = config("server: 'http://a'", "");
    let file = File::new("context", &good.replace("current-context: dev", "current-context: prod"));
    assert_eq!(
        file.error(),
        "kubeconfig FILE: its current context \"prod\" does not exist: choose one with kubectl config use-context \
         (available: dev)"
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
fn invalid_certificates_are_reported_with_their_context() {
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
            "no-identity",
            format!("{server}, insecure-skip-tls-verify: true"),
            "client-certificate-data: czNjcmV0, client-key-data: czNjcmV0".to_owned(),
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
fn server_address_must_be_valid() {
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
fn missing_flags_outside_a_pod_name_the_flag_to_set() {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return;
    }
    let error = load(None, None).unwrap_err().to_string();
    assert_eq!(
        error,
        "neither --kubeconfig nor --master is set and this is not a pod (KUBERNETES_SERVICE_HOST or \
         KUBERNETES_SERVICE_PORT is not set): set --kubeconfig"
    );
}

/// A folder for one test, deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-kubeconfigs-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listing(paths: &[&Path]) -> Environment {
    Environment { kubeconfig: Some(std::env::join_paths(paths).unwrap()), ..Environment::default() }
}

fn flags(set: impl FnOnce(&mut ClusterOptions)) -> ClusterOptions {
    let mut options = ClusterOptions::default();
    set(&mut options);
    options
}

#[expect(clippy::unnecessary_wraps, reason = "the type of the options' fields")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Returns the error for a user's kubeconfig with the given content.
fn refused(test: &str, content: &str, options: &ClusterOptions) -> String {
    let folder = Folder::new(test);
    let path = folder.write("config", content);
    let error = listing(&[&path]).load(options).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error.replace(&path.display().to_string(), "FILE")
}

#[test]
fn first_of_several_files_defines_a_name_and_missing_are_skipped() {
    let folder = Folder::new("merge");
    let first = folder.write(
        "first",
        "current-context: \"\"\nclusters: [{name: one, cluster: {server: 'https://first'}}]\n\
         users: [{name: me, user: {as: first}}]\n",
    );
    let second = folder.write(
        "second",
        "current-context: two\ncontexts: [{name: two, context: {cluster: one, user: me, namespace: shop}}]\n\
         clusters: [{name: one, cluster: {server: 'https://second', tls-server-name: second}}]\n\
         users: [{name: me, user: {as: second, token: second}}]\n",
    );
    let third = folder.write("third", "current-context: three\n");
    let missing = folder.0.join("missing");
    let loaded =
        listing(&[&missing, &first, &second, &first, &third]).load(&ClusterOptions::default()).unwrap();
    assert_eq!(loaded.server, "https://first");
    assert_eq!(loaded.namespace, "shop");
    assert_eq!(loaded.context.as_deref(), Some("two"));
    assert_eq!(loaded.config.tls_server_name, None);
    assert_eq!(loaded.config.auth_info.impersonate.as_deref(), Some("first"));
    assert!(loaded.config.auth_info.token.is_none());
}

#[test]
fn paths_in_a_file_are_relative_to_its_folder() {
    let folder = Folder::new("relative");
    let token = folder.write("deep/secrets/token", "t\n");
    let config = folder.write(
        "deep/config",
        &config(
            "server: 'https://a', insecure-skip-tls-verify: true",
            "tokenFile: secrets/token, client-certificate: '', exec: {apiVersion: client.authentication.k8s.io/v1beta1, \
             command: bin/plugin}",
        ),
    );
    let user = listing(&[&config]).load(&ClusterOptions::default()).unwrap().config.auth_info;
    assert_eq!(user.token_file.as_deref(), token.to_str());
    assert_eq!(user.client_certificate, None);
    assert_eq!(user.exec.unwrap().command.as_deref(), folder.0.join("deep/bin/plugin").to_str());
}

#[test]
fn plugin_without_a_folder_is_searched_on_the_path() {
    let folder = Folder::new("bare");
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: plugin}";
    let path = folder.write("config", &config("server: 'https://a', insecure-skip-tls-verify: true", exec));
    let user = listing(&[&path]).load(&ClusterOptions::default()).unwrap().config.auth_info;
    assert_eq!(user.exec.unwrap().command.as_deref(), Some("plugin"));
}

#[test]
fn kubeconfig_precedence_is_flag_then_variable_then_home() {
    let folder = Folder::new("home");
    let file = |server: &str| config(&format!("server: 'https://{server}'"), "");
    folder.write(".kube/config", &file("home"));
    let listed = folder.write("listed", &file("listed"));
    let given = folder.write("given", &file("given"));
    let mut environment = Environment { home: Some(folder.0.clone()), ..Environment::default() };
    let server =
        |environment: &Environment, options: &ClusterOptions| environment.load(options).unwrap().server;
    assert_eq!(server(&environment, &ClusterOptions::default()), "https://home");
    environment.kubeconfig = Some(OsString::new());
    assert_eq!(server(&environment, &ClusterOptions::default()), "https://home");
    environment.kubeconfig = Some(listed.into_os_string());
    assert_eq!(server(&environment, &ClusterOptions::default()), "https://listed");
    assert_eq!(server(&environment, &flags(|options| options.kubeconfig = Some(given))), "https://given");

    let missing = flags(|options| options.kubeconfig = Some(folder.0.join("missing")));
    let error = environment.load(&missing).unwrap_err().to_string();
    assert!(error.ends_with(": check --kubeconfig and the permissions of the file"), "{error}");
}
