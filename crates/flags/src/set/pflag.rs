//! Compares parsed flag values with the results of pflag and of kube-controller-manager's parsers. The Go program in
//! `tests/pflag` runs these parsers.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use serde::{Deserialize, Serialize};

use super::*;

/// A command line with one flag.
#[derive(Debug, Clone, Serialize)]
struct Case {
    flag: &'static str,
    /// One value per occurrence of the flag.
    values: Vec<String>,
}

/// The error of a command line, or the value of its flag in pflag's output format.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Outcome {
    error: String,
    printed: String,
}

/// Flags with alphabets. The test compares all texts of up to four characters of the alphabet.
const ALPHABETS: [(&str, &str); 15] = [
    ("disabled-metrics", "a,\"\n\r \u{e9}"),
    ("allow-metric-labels", "a=,\"\n "),
    ("tls-curve-preferences", "019-,_x "),
    ("tls-sni-cert-key", "aB,:; "),
    ("feature-gates", "aB=:, "),
    ("vmodule", "a1=,- "),
    ("v", "019-+_ x"),
    ("profiling", "01tTrueF"),
    ("concurrent-job-syncs", "019-+_xob"),
    ("http2-max-streams-per-connection", "019-_xA "),
    ("node-monitor-period", "19.-hmsu\u{b5}"),
    ("bind-address", "1.:a "),
    ("node-eviction-rate", "09.-+eE_"),
    ("horizontal-pod-autoscaler-tolerance", "1-+infaN"),
    ("log-text-info-buffer-size", "01.-eEmMi"),
];

/// Flags that Concertina prints as on the command line. The test compares only the errors of these flags.
const PRINTED_AS_WRITTEN: [&str; 3] =
    ["node-eviction-rate", "horizontal-pod-autoscaler-tolerance", "log-text-info-buffer-size"];

/// Further command lines: longer values, several occurrences, and values at limits.
const TABLE: [(&str, &[&str]); 33] = [
    ("allow-metric-labels", &["m,l=v"]),
    ("allow-metric-labels", &["m,l=v,w"]),
    ("allow-metric-labels", &["\"m,l=v,w\""]),
    ("allow-metric-labels", &["m,l='v,w'"]),
    ("allow-metric-labels", &["m,l=v,n,k=w"]),
    ("allow-metric-labels", &["\"m,l=v,w\",\"n,k=x\""]),
    ("allow-metric-labels", &["\"m,l=v,w\",\"n,k=x"]),
    ("allow-metric-labels", &["a=1", "b=2,c=3", "a=4"]),
    ("allow-metric-labels", &["a=b=c"]),
    ("allow-metric-labels", &["a=1,a=2"]),
    ("allow-metric-labels", &["none"]),
    ("disabled-metrics", &["a,b", "", "c"]),
    ("disabled-metrics", &["a,\"b,\"\"c\"\"\",,d"]),
    ("disabled-metrics", &["\\."]),
    ("disabled-metrics", &["\"a\r\nb\"\r\nc"]),
    ("disabled-metrics", &["a", "\"b"]),
    ("disabled-metrics", &["\u{3000}a,\u{85}b,\tc"]),
    ("tls-curve-preferences", &["29,23", "0x1d", "-1"]),
    ("tls-curve-preferences", &["2147483648"]),
    ("tls-curve-preferences", &["29,"]),
    ("tls-sni-cert-key", &["a.crt,a.key", " b.crt , b.key : B.example , c "]),
    ("tls-sni-cert-key", &["a.crt,a.key:"]),
    ("tls-sni-cert-key", &["a.crt,a.key:x:y"]),
    ("tls-sni-cert-key", &["a.crt"]),
    ("feature-gates", &["kube:A=true,B=false", "wardle:C=true,A:B=true:x"]),
    ("vmodule", &["a*=1,b=2,", "c=2147483647"]),
    ("vmodule", &["a=2147483648"]),
    ("v", &["2147483647"]),
    ("v", &["2147483648"]),
    ("concurrent-job-syncs", &["-0x8000_0000"]),
    ("http2-max-streams-per-connection", &["9223372036854775808"]),
    ("node-monitor-period", &["-9223372036854775808ns"]),
    ("bind-address", &["::ffff:10.0.0.1"]),
];

fn texts(alphabet: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut longest = all.clone();
    for _ in 0..4 {
        longest = longest
            .iter()
            .flat_map(|text| alphabet.chars().map(move |next| format!("{text}{next}")))
            .collect();
        all.extend_from_slice(&longest);
    }
    all
}

fn cases() -> Vec<Case> {
    let table = TABLE
        .iter()
        .map(|(flag, values)| Case { flag, values: values.iter().map(ToString::to_string).collect() });
    let generated = ALPHABETS.iter().flat_map(|(flag, alphabet)| {
        texts(alphabet).into_iter().map(move |text| Case { flag, values: vec![text] })
    });
    table.chain(generated).collect()
}

fn upstream(cases: &[Case]) -> Vec<Outcome> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pflag/build.sh");
    let built = Process::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success());
    let program = String::from_utf8(built.stdout).unwrap();
    let mut child =
        Process::new(program.trim()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // The program reads its whole input before it writes.
    input.write_all(&serde_json::to_vec(cases).unwrap()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn parsed(flags: &FlagSet, case: &Case) -> Outcome {
    let words = case.values.iter().map(|value| format!("--{}={value}", case.flag));
    let matches = match flags.parse(flags.add_to(Command::new("concertina")), words) {
        Ok(matches) => matches,
        Err(error) => return Outcome { error: error.to_string(), printed: String::new() },
    };
    let mut draft = Draft::default();
    // `apply` adds the printed value before it checks the value, so an error is ignored.
    let _checked = flags.0.get(case.flag).map(|flag| (flag.apply)(&mut draft, &matches));
    let (_, printed) = draft.config.serving.given.pop().unwrap();
    Outcome { error: String::new(), printed }
}

#[test]
#[ignore = "builds a Go program"]
fn flag_values_equal_those_of_pflag() {
    let cases = cases();
    let expected = upstream(&cases);
    assert_eq!(cases.len(), expected.len());
    let mut flags = BTreeMap::new();
    for flag in kcm::flags() {
        // Each set has one flag, because clap needs more time for more flags.
        let name = flag.name;
        flags.insert(name, FlagSet(BTreeMap::from([(name, flag)])));
    }
    let mut different = Vec::new();
    for (case, mut expected) in cases.iter().zip(expected) {
        // Concertina refuses an empty file name when it parses the flag, but kube-controller-manager only when it opens
        // the file.
        let unnamed = |certificate: &str| {
            certificate.starts_with(',')
                || certificate.split(':').next().is_some_and(|files| files.ends_with(','))
        };
        if case.flag == "tls-sni-cert-key" && unnamed(expected.printed.trim_matches(['[', ']'])) {
            continue;
        }
        let mut parsed = parsed(&flags[case.flag], case);
        if PRINTED_AS_WRITTEN.contains(&case.flag) {
            (parsed.printed, expected.printed) = (String::new(), String::new());
        }
        if parsed != expected {
            different.push(format!("{case:?}\n    {parsed:?}\n    {expected:?}"));
        }
    }
    let first = different.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(different.is_empty(), "{} of {} differ:\n{first}", different.len(), cases.len());
}
