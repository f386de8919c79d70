use rustls::crypto::ring::default_provider;

use super::super::trust::verifies;
use super::*;

const NAME: &str = "concertina-handover.concertina-system.svc";

fn at(days: i64, minutes: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + days * 86_400 + minutes * 60).unwrap()
}

fn sign(authorities: &Authorities, now: Timestamp) -> Serving {
    authorities.sign(&[NAME.to_owned()], now, &default_provider()).unwrap().unwrap()
}

#[test]
fn certificate_is_trusted_by_the_bundle_for_the_name_of_the_service() {
    let authorities = Authorities::default().renewed(at(0, 0)).unwrap().unwrap();
    let again = Authorities::parse(&authorities.contents()).unwrap();
    assert_eq!(again, authorities);
    let serving = sign(&again, at(0, 0));
    let provider = Arc::new(default_provider());
    let trusted = |bundle: &str, name: &str, now| verifies(bundle, &serving.key, name, now, &provider);
    assert!(trusted(&authorities.bundle(), NAME, at(29, 0)));
    assert!(!trusted(&authorities.bundle(), NAME, at(31, 0)), "expired");
    assert!(!trusted(&authorities.bundle(), "other.svc", at(0, 0)));
    let other = Authorities::default().renewed(at(0, 0)).unwrap().unwrap();
    for bundle in ["", "-----BEGIN", &other.bundle()] {
        assert!(!trusted(bundle, NAME, at(0, 0)), "{bundle}");
    }
}

#[test]
fn successor_signs_only_after_the_bundle_had_time_to_spread() {
    let first = Authorities::default().renewed(at(0, 0)).unwrap().unwrap();
    let serving = sign(&first, at(0, 0));
    assert_eq!(first.renewed(at(242, 0)).unwrap(), None);
    assert!(!first.must_replace(&serving, at(19, 0)) && first.must_replace(&serving, at(20, 0)));

    let both = first.renewed(at(243, 0)).unwrap().unwrap();
    assert_eq!(both.0.len(), 2);
    assert!(both.bundle().starts_with(&first.bundle()));
    let serving = sign(&both, at(243, 0));
    assert_eq!(serving.issued_by, first.0[0].created);
    assert!(!both.must_replace(&serving, at(243, 9)) && both.must_replace(&serving, at(243, 10)));
    let next = sign(&both, at(243, 10));
    let provider = Arc::new(default_provider());
    assert!(verifies(&both.bundle(), &next.key, NAME, at(243, 10), &provider));
    let left = both.renewed(at(365, 0)).unwrap().unwrap();
    assert_eq!(left.0.len(), 1);
    assert!(verifies(&left.bundle(), &next.key, NAME, at(260, 0), &provider));
}

#[test]
fn invalid_contents_are_errors() {
    assert_eq!(Authorities::parse(b""), Ok(Authorities::default()));
    let many =
        json!({"authorities": vec![json!({"created": 1, "certificate": "", "key": ""}); 9]}).to_string();
    for contents in
        ["{", "{}", r#"{"authorities":[{}]}"#, r#"{"authorities":[{"created":1,"key":3}]}"#, &many]
    {
        assert!(
            matches!(Authorities::parse(contents.as_bytes()), Err(AuthorityError::Invalid(_))),
            "{contents}"
        );
    }
    let bad = br#"{"authorities":[{"created":-9223372036854775808,"certificate":"","key":"AAAA"}]}"#;
    let bad = Authorities::parse(bad).unwrap();
    assert!(bad.sign(&[NAME.to_owned()], at(0, 0), &default_provider()).is_err());
}
