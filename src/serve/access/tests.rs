use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

use super::trust::Subject;
use super::*;

fn token(header: &str) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, header.parse().unwrap());
    bearer_token(&headers).map(str::to_owned)
}

#[test]
fn bearer_token_is_the_second_word() {
    assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
    assert_eq!(token("bearer abc x").as_deref(), Some("abc"));
    for header in ["Bearer", "Bearer ", "Basic abc", "abc", "Bearer  abc"] {
        assert_eq!(token(header), None, "{header}");
    }
}

#[test]
fn user_is_authenticated_unless_a_front_proxy_calls_it_anonymous() {
    let groups = |name: &str, groups: &[&str]| {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        among_authenticated(User { name: name.to_owned(), groups, ..User::default() }).groups
    };
    assert_eq!(groups("jane", &["dev"]), ["dev", AUTHENTICATED]);
    assert_eq!(groups("jane", &[AUTHENTICATED]), [AUTHENTICATED]);
    assert_eq!(groups(ANONYMOUS, &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
    assert_eq!(groups("unidentified", &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
    assert!(groups(ANONYMOUS, &[]).is_empty());
}

#[test]
fn refusals_have_the_words_of_the_api_server() {
    let user = User { name: "jane".into(), ..User::default() };
    let path = Action::NonResourceAttributes { path: "/metrics".into(), verb: "get".into() };
    assert_eq!(forbidden(&user, &path, "").message, "forbidden: User \"jane\" cannot get path \"/metrics\"");
    let one = ResourceAction {
        verb: "get",
        group: "autoscaling",
        version: "v2",
        resource: "horizontalpodautoscalers",
        subresource: "",
        namespace: "shop".into(),
        name: "web".into(),
    };
    assert_eq!(
        forbidden(&user, &Action::ResourceAttributes(one.clone()), "no").message,
        "horizontalpodautoscalers.autoscaling \"web\" is forbidden: User \"jane\" cannot get resource \
         \"horizontalpodautoscalers\" in API group \"autoscaling\" in the namespace \"shop\": no"
    );
    let all = ResourceAction { verb: "list", namespace: String::new(), name: String::new(), ..one };
    assert_eq!(
        forbidden(&user, &Action::ResourceAttributes(all), "").message,
        "horizontalpodautoscalers.autoscaling is forbidden: User \"jane\" cannot list resource \
         \"horizontalpodautoscalers\" in API group \"autoscaling\" at the cluster scope"
    );
}

const TTL: Duration = Duration::from_secs(10);

fn reviewed(answer: usize, good: bool) -> Reviewed<usize> {
    Reviewed { answer, good, ttl: TTL }
}

#[tokio::test(start_paused = true)]
async fn answer_is_cached_until_its_ttl_ends() {
    let (reviews, asked) = (Reviews::new(), AtomicUsize::new(0));
    let ask = async || Ok(reviewed(asked.fetch_add(1, Ordering::Relaxed), true));
    assert_eq!(reviews.get(b"a", ask).await.unwrap(), 0);
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert_eq!(reviews.get(b"a", ask).await.unwrap(), 0);
    assert_eq!(reviews.get(b"b", ask).await.unwrap(), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(reviews.get(b"a", ask).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_questions_are_reviewed_once() {
    let (reviews, asked) = (Reviews::new(), AtomicUsize::new(0));
    let ask = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(reviewed(asked.fetch_add(1, Ordering::Relaxed), true))
    };
    let (first, second) = tokio::join!(reviews.get(b"a", ask), reviews.get(b"a", ask));
    assert_eq!((first.unwrap(), second.unwrap()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_review_is_not_cached() {
    let reviews = Reviews::new();
    let failed = reviews.get(b"a", async || Err(ApiError::Request("down".into()))).await;
    assert!(failed.is_err());
    assert_eq!(reviews.get(b"a", async || Ok(reviewed(7, true))).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn invented_tokens_do_not_evict_granted_answers() {
    let reviews = Reviews::new();
    reviews.get(b"good", async || Ok(reviewed(1, true))).await.unwrap();
    for number in 0..2 * MAX_CACHED {
        reviews.get(format!("{number}").as_bytes(), async || Ok(reviewed(0, false))).await.unwrap();
    }
    assert_eq!(reviews.entries.lock().len(), MAX_CACHED);
    let again = reviews.get(b"good", async || Ok(reviewed(2, true))).await.unwrap();
    assert_eq!(again, 1, "the answer is still cached");
}

fn subject(names: &[(DnType, &str)]) -> Subject {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for (kind, text) in names {
        params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*text).to_owned()));
    }
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    Subject::from_der(webpki::EndEntityCert::try_from(certificate.der()).unwrap().subject())
}

#[test]
fn common_name_is_the_user_and_organizations_are_groups() {
    let long = "x".repeat(200);
    let read = subject(&[
        (DnType::OrganizationName, "system:masters"),
        (DnType::CountryName, "CH"),
        (DnType::CommonName, &long),
    ]);
    assert_eq!(read.common_name, Some(long));
    assert_eq!(read.organizations, ["system:masters"]);
    assert_eq!(subject(&[]), Subject::default());
}

#[test]
fn subject_has_one_group_per_organization() {
    // The subject consists of the sets {O=a}, {O=b} and {CN=c}. rcgen cannot write a subject with two
    // organizations.
    let name = [
        &[0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 10, 0x0c, 1, b'a'][..],
        &[0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 10, 0x13, 1, b'b'],
        &[0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 3, 0x16, 1, b'c'],
    ];
    let read = Subject::from_der(&name.concat());
    assert_eq!((read.common_name.as_deref(), read.organizations), (Some("c"), vec!["a".into(), "b".into()]));
}

proptest! {
    #[test]
    fn subject_parser_accepts_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Subject::from_der(&bytes);
    }
}
