//! Flags that override settings of the files, and settings that are rejected.

use super::*;

const TWO: &str = "\
current-context: dev
contexts:
- name: dev
  context: {cluster: one, user: me, namespace: shop}
- name: prod
  context: {cluster: two, user: you}
clusters:
- name: one
  cluster: {server: 'https://one', tls-server-name: one.example.com, insecure-skip-tls-verify: true}
- name: two
  cluster: {server: 'https://two', proxy-url: 'http://proxy:3128', insecure-skip-tls-verify: true}
users:
- name: me
  user: {token: mine, as: boss, as-groups: [a]}
- name: you
  user: {username: you, password: s3cret}
";

#[test]
fn flags_choose_context_cluster_user_and_namespace() {
    let folder = Folder::new("choose");
    let path = folder.write("config", TWO);
    let load = |options: &ClusterOptions| listing(&[&path]).load(options).unwrap();

    let dev = load(&ClusterOptions::default());
    assert_eq!(
        (dev.server.as_str(), dev.namespace.as_str(), dev.context.as_deref()),
        ("https://one", "shop", Some("dev"))
    );
    let prod = load(&flags(|options| options.context = some("prod")));
    assert_eq!((prod.server.as_str(), prod.namespace.as_str()), ("https://two", "default"));
    assert_eq!(prod.config.proxy_url.unwrap(), "http://proxy:3128/");
    assert_eq!(prod.config.auth_info.username.as_deref(), Some("you"));
    let mixed = load(&flags(|options| {
        (options.cluster, options.user, options.namespace) = (some("two"), some("me"), some("other"));
    }));
    assert_eq!((mixed.server.as_str(), mixed.namespace.as_str()), ("https://two", "other"));
    assert_eq!(mixed.config.auth_info.impersonate.as_deref(), Some("boss"));
    let empty = load(&flags(|options| (options.context, options.namespace) = (some(""), some(""))));
    assert_eq!((empty.server.as_str(), empty.namespace.as_str()), ("https://one", "shop"));
}

#[test]
fn flags_override_server_and_user_of_the_file() {
    let folder = Folder::new("replace");
    let path = folder.write("config", TWO);
    let load = |options: &ClusterOptions| listing(&[&path]).load(options).unwrap();

    let elsewhere = load(&flags(|options| options.server = some("https://other:6443")));
    assert_eq!(elsewhere.server, "https://other:6443");
    assert_eq!(elsewhere.config.tls_server_name, None);
    let named = load(&flags(|options| options.tls_server_name = some("other.example.com")));
    assert_eq!(named.config.tls_server_name.as_deref(), Some("other.example.com"));
    assert!(named.config.accept_invalid_certs);

    let acting = load(&flags(|options| {
        options.impersonate = some("me");
        options.impersonate_groups = vec!["b".to_owned(), "c".to_owned()];
        options.impersonate_user_extra = [("team".to_owned(), vec!["x".to_owned(), "y".to_owned()])].into();
        options.impersonate_uid = some("7");
    }));
    let user = acting.config.auth_info;
    assert_eq!(user.impersonate.as_deref(), Some("me"));
    assert_eq!(user.impersonate_groups, Some(vec!["b".to_owned(), "c".to_owned()]));
    let extra = user.impersonate_user_extra.unwrap();
    assert_eq!(extra.get("team"), Some(&vec!["x".to_owned(), "y".to_owned()]));
    assert_eq!(user.impersonate_uid.as_deref(), Some("7"));

    let unlimited = load(&flags(|options| options.request_timeout = Some(Duration::ZERO)));
    assert_eq!(unlimited.request_timeout, Some(Duration::MAX));
}

#[test]
fn server_flag_alone_is_sufficient() {
    let alone = Environment::default().load(&flags(|options| options.server = some("https://a:1"))).unwrap();
    assert_eq!(
        (alone.server.as_str(), alone.namespace.as_str(), alone.context),
        ("https://a:1", "default", None)
    );
    let plain = Environment::default().load(&flags(|options| options.server = some("a:1"))).unwrap();
    assert_eq!(plain.server, "http://a:1");
}

#[test]
fn names_in_flags_must_exist() {
    assert_eq!(
        refused("flag-context", TWO, &flags(|options| options.context = some("test"))),
        "kubeconfig FILE: the context \"test\" does not exist: use another --context (available: dev, prod)"
    );
    assert_eq!(
        refused("flag-cluster", TWO, &flags(|options| options.cluster = some("three"))),
        "kubeconfig FILE: the cluster \"three\" does not exist: use another --cluster (available: one, two)"
    );
    assert_eq!(
        refused("flag-user", TWO, &flags(|options| options.user = some("they"))),
        "kubeconfig FILE: the user \"they\" does not exist: use another --user (available: me, you)"
    );
}

#[test]
fn missing_cluster_is_reported_with_a_remedy() {
    let error = Environment::default().load(&ClusterOptions::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "no kubeconfig found: set --kubeconfig or KUBECONFIG, or create ~/.kube/config with kubectl config"
    );
    assert_eq!(
        refused("no-current", &TWO.replace("current-context: dev\n", ""), &ClusterOptions::default()),
        "kubeconfig FILE: it has no current context: choose one with kubectl config use-context (available: dev, prod)"
    );
}

#[test]
fn contradictory_and_unsupported_settings_are_rejected_by_name() {
    let exec = |rest: &str| format!("exec: {{command: plugin{rest}}}");
    let v1 = ", apiVersion: client.authentication.k8s.io/v1";
    let cases = [
        ("", "auth-provider: {name: oidc}".to_owned(), "auth-provider \"oidc\" is not supported"),
        ("", exec(v1), "has no interactiveMode"),
        ("", exec(""), "the credential plugin plugin has no apiVersion"),
        ("", exec(", apiVersion: client.authentication.k8s.io/v1alpha1"), "v1alpha1\": only"),
        ("", exec(&format!("{v1}, interactiveMode: Never, env: [{{value: x}}]")), "has no name"),
        ("", "exec: {}".to_owned(), "has no command"),
        ("", "token: a, username: b".to_owned(), "a token and a user name"),
        ("", "client-certificate-data: czNjcmV0".to_owned(), "set client-key or client-key-data"),
        ("", "as-uid: a".to_owned(), "set --as"),
        (", proxy-url: 'ftp://me:s3cret@proxy'", String::new(), "proxy-url is not the URL of a proxy"),
        (", proxy-url: 'proxy'", String::new(), "proxy-url is not the URL of a proxy"),
        (
            ", certificate-authority: ca.crt, certificate-authority-data: czNjcmV0",
            String::new(),
            "certificate-authority-data are both given",
        ),
        (
            ", certificate-authority: ca.crt, insecure-skip-tls-verify: true",
            String::new(),
            "insecure-skip-tls-verify are both given",
        ),
    ];
    for (cluster, user, expected) in cases {
        let content = config(&format!("server: 'https://a'{cluster}"), &user);
        let error = refused("refused", &content, &ClusterOptions::default());
        assert!(error.starts_with("kubeconfig FILE: context \"dev\": "), "{error}");
        assert!(error.contains(expected) && !error.contains("s3cret"), "{expected}: {error}");
    }
    let twice = "clusters: [{name: one, cluster: {}}, {name: one, cluster: {}}]\n";
    let error = refused("twice", twice, &ClusterOptions::default());
    assert!(error.starts_with("kubeconfig FILE is not valid: it has the cluster \"one\" twice: "), "{error}");
    let error = refused("kind", "kind: Pod\n", &ClusterOptions::default());
    assert!(error.contains("is not of apiVersion v1 and kind Config"), "{error}");
}

#[test]
fn authority_and_skip_verify_flags_replace_each_other() {
    let folder = Folder::new("authority");
    let CertifiedKey { cert, .. } = generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    let authority = folder.write("ca.crt", &cert.pem());
    let path = folder.write("config", &config("server: 'https://a', certificate-authority: ca.crt", ""));
    let load = |options: &ClusterOptions| listing(&[&path]).load(options).unwrap().config;

    assert_eq!(load(&ClusterOptions::default()).root_cert.unwrap().len(), 1);
    let skipping = load(&flags(|options| options.insecure_skip_tls_verify = true));
    assert!(skipping.accept_invalid_certs && skipping.root_cert.is_none());
    fs::write(&path, config("server: 'https://a', insecure-skip-tls-verify: true", "")).unwrap();
    let checking =
        load(&flags(|options| options.certificate_authority = authority.to_str().map(str::to_owned)));
    assert!(!checking.accept_invalid_certs && checking.root_cert.is_some());
}

#[test]
fn token_flag_replaces_the_users_token_and_needs_no_user() {
    let folder = Folder::new("token");
    let file = config("server: 'https://a', insecure-skip-tls-verify: true", "tokenFile: token");
    let path = folder.write("config", &file.replace("user: me", "user: gone"));
    let with_token = flags(|options| options.token = Some(Secret::new("t")));
    let user = listing(&[&path]).load(&with_token).unwrap().config.auth_info;
    assert!(user.token.is_some() && user.token_file.is_none());
    fs::write(&path, file).unwrap();
    let user = listing(&[&path]).load(&with_token).unwrap().config.auth_info;
    assert!(user.token.is_some() && user.token_file.is_none());
}

#[test]
fn key_without_a_certificate_is_ignored() {
    let folder = Folder::new("key");
    let path = folder.write("config", &config("server: 'https://a'", "client-key: nowhere"));
    assert!(
        listing(&[&path]).load(&ClusterOptions::default()).unwrap().config.auth_info.client_key.is_none()
    );
}

#[test]
fn files_in_utf_16_are_read() {
    let folder = Folder::new("utf-16");
    let path = folder.0.join("config");
    let units =
        config("server: 'http://a'", "").encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    fs::write(&path, [&[0xff, 0xfe], units.as_slice()].concat()).unwrap();
    assert_eq!(listing(&[&path]).load(&ClusterOptions::default()).unwrap().server, "http://a");
}

#[test]
fn service_account_is_used_in_a_pod_without_other_settings() {
    let folder = Folder::new("pod");
    let CertifiedKey { cert, .. } = generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    folder.write("token", "t");
    folder.write("ca.crt", &cert.pem());
    folder.write("namespace", "shop\n");
    let pod = |host: &str, namespace: Option<&str>| {
        Pod::with(&folder.0, |name| match name {
            "KUBERNETES_SERVICE_HOST" => some(host),
            "KUBERNETES_SERVICE_PORT" => some("443"),
            _ => namespace.map(str::to_owned),
        })
    };
    let environment = Environment { pod: pod("10.0.0.1", None), ..Environment::default() };
    let loaded = environment.load(&ClusterOptions::default()).unwrap();
    assert_eq!((loaded.server.as_str(), loaded.namespace.as_str()), ("https://10.0.0.1:443", "shop"));
    assert_eq!(loaded.config.auth_info.token_file.as_deref(), folder.0.join("token").to_str());
    assert!(loaded.config.root_cert.is_some());
    let acting = environment.load(&flags(|options| options.impersonate = some("me"))).unwrap();
    assert_eq!(acting.config.auth_info.impersonate.as_deref(), Some("me"));
    let elsewhere = environment.load(&flags(|options| options.server = some("https://b"))).unwrap();
    assert_eq!(elsewhere.server, "https://b");
    assert!(elsewhere.config.auth_info.token_file.is_none());

    assert_eq!(pod("fd00::1", Some("configured")).unwrap().server, "https://[fd00::1]:443");
    assert_eq!(pod("10.0.0.1", Some("configured")).unwrap().namespace().as_deref(), Some("configured"));
    assert!(pod("", None).is_none());
}
