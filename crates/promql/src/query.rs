//! Queries of tenants, which are parsed, restricted to a namespace, and printed again.

use limits::query::{
    BYTES as MAX_QUERY, OPERATORS as MAX_OPERATORS, REGEXES as MAX_REGEXES, SENT as MAX_TEXT,
};
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, BinModifier, Expr, LabelModifier, VectorMatchCardinality, VectorSelector};

use crate::lexical::Normal;
use crate::regexes::Regexes;

/// The length of the random part of a pod's name.
const RANDOM: usize = 5;

/// The namespace to which a query is restricted.
#[derive(Debug, Clone, Copy)]
pub struct Tenant<'a> {
    /// The label that contains the namespace of a series.
    pub label: &'a str,
    /// The namespace of the HPA.
    pub namespace: &'a str,
}

/// The values that replace variables within the strings of a query.
#[derive(Debug, Clone, Copy)]
pub struct Variables<'a> {
    /// `$namespace`: the namespace of the HPA.
    pub namespace: &'a str,
    /// `$name`: the name of the target.
    pub name: &'a str,
    /// The names of the target's pods. `$pods` becomes a regular expression that matches them.
    pub pods: &'a [&'a str],
}

/// The pattern by which the names of pods derive from the name of their workload. In a query of the past, `$pods`
/// stands for this pattern, because earlier pods had other names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNames {
    /// Names such as `web-7d9f8c6b5-x2k4q`, of a Deployment or another kind that creates ReplicaSets.
    OfReplicaSets,
    /// Names such as `web-0`, of a StatefulSet.
    Numbered,
    /// Names such as `web-x2k4q`, of a ReplicaSet or a ReplicationController.
    Random,
}

impl PodNames {
    /// Returns the pattern for workloads of `kind`.
    pub fn from_kind(kind: &str) -> Self {
        match kind {
            "StatefulSet" => Self::Numbered,
            "ReplicaSet" | "ReplicationController" => Self::Random,
            _ => Self::OfReplicaSets,
        }
    }

    /// Returns the regular expression for the part after the name of the workload. It needs no escape within a string.
    const fn expression(self) -> &'static str {
        match self {
            Self::OfReplicaSets => "-[a-z0-9]+-[a-z0-9]{5}",
            Self::Numbered => "-[0-9]+",
            Self::Random => "-[a-z0-9]{5}",
        }
    }

    /// Returns the regular expression for the pods of `workload`, for a string in a query.
    pub fn pattern(self, workload: &str) -> String {
        format!("{}{}", escaped(workload), self.expression())
    }

    /// Returns whether a pod of `workload` can have the name `pod`.
    pub fn is_pod(self, workload: &str, pod: &str) -> bool {
        let Some(rest) = pod.strip_prefix(workload).and_then(|rest| rest.strip_prefix('-')) else {
            return false;
        };
        let is_word = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let is_random = |text: &str| is_word(text) && text.len() == RANDOM;
        match self {
            Self::OfReplicaSets => {
                rest.split_once('-').is_some_and(|(hash, random)| is_word(hash) && is_random(random))
            }
            Self::Numbered => !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()),
            Self::Random => is_random(rest),
        }
    }
}

/// The reason why a query is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The query is too long. Contains the length in bytes.
    #[error("the query has {0} bytes: at most {MAX_QUERY} are allowed")]
    TooLong(usize),
    /// The query has too many operators and brackets.
    #[error("the query has more than {MAX_OPERATORS} operators and brackets: split it into recording rules")]
    TooComplex,
    /// The query has too many regular expressions.
    #[error("the query has more than {MAX_REGEXES} regular expressions: split it into recording rules")]
    TooManyRegexes,
    /// A number is out of range. Contains the number.
    #[error("the number {0} is out of range: at most 15 digits, and 9 of a duration, are allowed")]
    Number(String),
    /// The parser panicked.
    #[error("the parser failed on the query: write its numbers and durations in another way")]
    Parser,
    /// The query is not PromQL. Contains the parser's message.
    #[error("the query is invalid: {0}")]
    Invalid(String),
    /// The query has syntax that the parser does not know, and must be restricted to a namespace. Contains the syntax.
    #[error(
        "Concertina does not know this syntax of PromQL: {0}; record the result with a rule of Prometheus, and query its series"
    )]
    UnknownSyntax(&'static str),
    /// The query cannot be restricted to a namespace. Contains the reason.
    #[error("the query cannot be restricted to the namespace: {0}")]
    Unrestricted(&'static str),
    /// The label of namespaces is not a label name. Contains the label.
    #[error("invalid label {0:?} of namespaces: must be a name of letters, digits and _")]
    Label(String),
    /// The printed query is too long, is invalid, or parses to another expression.
    #[error(
        "the query cannot be printed without a change of its meaning: write names and strings in plain ASCII"
    )]
    Unprintable,
    /// A value of a variable is not the name of an object. Contains the value.
    #[error("invalid value {0:?} of a variable: must be the name of an object")]
    Variable(String),
    /// The query uses `$pods`, but the target has no pods.
    #[error("the query uses $pods, and the target has no pods")]
    NoPods,
    /// The query with its variables replaced is too long. Contains the length in bytes.
    #[error(
        "the query with the names of its pods has {0} bytes: at most {MAX_TEXT} are allowed, select pods by a label"
    )]
    TextTooLong(usize),
}

/// A query that is restricted and printed, with its variables still in place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    text: String,
}

impl Query {
    /// Parses a query and restricts it to the namespace of `tenant`. `None` restricts nothing, and accepts syntax that the
    /// parser does not know or cannot print.
    pub fn parse(query: &str, tenant: Option<Tenant<'_>>) -> Result<Self, QueryError> {
        check_size(query)?;
        let normal = Normal::of(query);
        check_numbers(&normal.text)?;
        // promql-parser panics on some numbers. A query of a tenant must not crash the caller.
        let parsed = std::panic::catch_unwind(|| Self::parse_checked(&normal.text, tenant))
            .unwrap_or(Err(QueryError::Parser));
        match (parsed, tenant) {
            (Err(QueryError::Unprintable), None) => Ok(Self { text: normal.text }),
            (Err(QueryError::Invalid(reason)), tenant) => match (normal.unknown_syntax(), tenant) {
                (None, _) => Err(QueryError::Invalid(reason)),
                (Some(_), None) => Ok(Self { text: normal.text }),
                (Some(syntax), Some(_)) => Err(QueryError::UnknownSyntax(syntax)),
            },
            (parsed, _) => parsed,
        }
    }

    fn parse_checked(query: &str, tenant: Option<Tenant<'_>>) -> Result<Self, QueryError> {
        let (query, regexes) = Regexes::take(query);
        let mut expression = parser::parse(&query).map_err(QueryError::Invalid)?;
        if let Some(tenant) = tenant {
            if !is_label(tenant.label) {
                return Err(QueryError::Label(tenant.label.to_owned()));
            }
            if !is_object_name(tenant.namespace) {
                return Err(QueryError::Variable(tenant.namespace.to_owned()));
            }
        }
        let namespace = tenant.map(|tenant| Matcher::new(MatchOp::Equal, tenant.label, tenant.namespace));
        each_selector(&mut expression, namespace.is_none(), &mut |selector| {
            restrict(selector, namespace.as_ref())
        })?;
        let text = expression.to_string();
        // The printed text is sent. If the text parses to another expression, the restriction may be lost.
        if parser::parse(&text).as_ref() != Ok(&expression) {
            return Err(QueryError::Unprintable);
        }
        // This only changes the contents of strings, which are printed with their escapes.
        each_selector(&mut expression, true, &mut |selector| {
            selector
                .matchers
                .matchers
                .iter_mut()
                .try_for_each(|matcher| regexes.put_back(matcher).ok_or(QueryError::Unprintable))
        })?;
        let text = expression.to_string();
        // The printed text may contain longer numbers, for example for a time in days, and other strings first.
        check_numbers(&text)?;
        if text.len() > MAX_TEXT {
            return Err(QueryError::Unprintable);
        }
        Ok(Self { text })
    }

    /// Returns the query with its variables still in place.
    pub fn template(&self) -> &str {
        &self.text
    }

    /// Returns whether the query contains `$pods`.
    pub fn uses_pods(&self) -> bool {
        self.text.contains("$pods")
    }

    /// Returns the query with its variables replaced, as it is sent.
    pub fn text(&self, variables: &Variables<'_>) -> Result<String, QueryError> {
        let Variables { namespace, name, pods } = *variables;
        // `$` is valid only within a string. Names of objects need no escapes within a string.
        if let Some(invalid) = pods.iter().find(|pod| !is_object_name(pod)) {
            return Err(QueryError::Variable((*invalid).to_owned()));
        }
        if pods.is_empty() && self.uses_pods() {
            return Err(QueryError::NoPods);
        }
        self.replaced(namespace, name, || escaped(&pods.join("|")))
    }

    /// Returns the query for all pods that a target has had. `$pods` becomes a regular expression for their names.
    pub fn text_of_past(&self, namespace: &str, name: &str, pods: PodNames) -> Result<String, QueryError> {
        self.replaced(namespace, name, || pods.pattern(name))
    }

    fn replaced(
        &self,
        namespace: &str,
        name: &str,
        pods: impl FnOnce() -> String,
    ) -> Result<String, QueryError> {
        if let Some(invalid) = [namespace, name].into_iter().find(|value| !is_object_name(value)) {
            return Err(QueryError::Variable(invalid.to_owned()));
        }
        let mut text = self.text.clone();
        if self.uses_pods() {
            let expression = pods();
            let times = text.matches("$pods").count();
            let length = expression.len().saturating_mul(times).saturating_add(text.len());
            if length > MAX_TEXT {
                return Err(QueryError::TextTooLong(length));
            }
            text = text.replace("$pods", &expression);
        }
        text = text.replace("$namespace", namespace).replace("$name", name);
        if text.len() > MAX_TEXT {
            return Err(QueryError::TextTooLong(text.len()));
        }
        Ok(text)
    }
}

/// Escapes each dot of names for a regular expression within a string. The backslash of the expression is escaped too.
fn escaped(names: &str) -> String {
    names.replace('.', "\\\\.")
}

fn check_size(query: &str) -> Result<(), QueryError> {
    if query.len() > MAX_QUERY {
        return Err(QueryError::TooLong(query.len()));
    }
    // Strings and selectors count too, so the check does not depend on where the parser ends a string.
    let symbols = query.bytes().filter(|byte| b"([+-*/%^=!<>".contains(byte)).count();
    let lower = query.to_ascii_lowercase();
    let words: usize = ["and", "or", "unless", "atan2"].iter().map(|word| lower.matches(word).count()).sum();
    if symbols + words > MAX_OPERATORS {
        return Err(QueryError::TooComplex);
    }
    if query.matches('~').count() > MAX_REGEXES {
        return Err(QueryError::TooManyRegexes);
    }
    Ok(())
}

/// Limits the numbers outside of strings to 15 digits, or 9 digits in a number with letters such as a duration. An
/// exponent has at most 1 digit, and a hexadecimal number at most 12 characters.
fn check_numbers(query: &str) -> Result<(), QueryError> {
    // Every second part is outside of strings, unless a string contains a quote.
    for part in query.split(['"', '\'', '`']).step_by(2) {
        let words =
            part.split(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '_' | '.'));
        for word in
            words.filter(|word| word.starts_with(|first: char| first.is_ascii_digit() || first == '.'))
        {
            let runs = word.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
            let digits = runs.map(str::len).max().unwrap_or(0);
            let hexadecimal = word.starts_with("0x") || word.starts_with("0X");
            let letters = word.bytes().any(|byte| byte.is_ascii_alphabetic());
            let exponent = word.split_once(['e', 'E']).map_or("", |(_, exponent)| exponent);
            if digits > if letters { 9 } else { 15 }
                || (exponent.len() > 1 && !hexadecimal)
                || (hexadecimal && word.len() > 12)
            {
                return Err(QueryError::Number(word.chars().take(40).collect()));
            }
        }
        // The loop above ends a word at the sign of an exponent.
        let lower = part.to_ascii_lowercase();
        for sign in ["e+", "e-"] {
            for (at, _) in lower.match_indices(sign) {
                let number = lower
                    .get(..at)
                    .is_some_and(|before| before.ends_with(|last: char| last.is_ascii_digit()));
                let digits = lower.get(at + sign.len()..).unwrap_or_default();
                if number && digits.bytes().take_while(u8::is_ascii_digit).count() > 1 {
                    return Err(QueryError::Number(digits.chars().take(40).collect()));
                }
            }
        }
    }
    Ok(())
}

/// Calls a function for every selector. The visitor of the parser's crate is not used, because it skips the parameter of
/// aggregations, which may contain selectors.
fn each_selector(
    expression: &mut Expr,
    allows_info: bool,
    change: &mut impl FnMut(&mut VectorSelector) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    match expression {
        Expr::Aggregate(aggregate) => {
            // The printer omits `by ()`.
            if matches!(&aggregate.modifier, Some(LabelModifier::Include(labels)) if labels.is_empty()) {
                aggregate.modifier = None;
            }
            each_selector(&mut aggregate.expr, allows_info, change)?;
            let parameter = aggregate.param.as_mut();
            parameter.map_or(Ok(()), |parameter| each_selector(parameter, allows_info, change))
        }
        Expr::Unary(unary) => each_selector(&mut unary.expr, allows_info, change),
        Expr::Binary(binary) => {
            omit_ignoring_nothing(&mut binary.modifier);
            each_selector(&mut binary.lhs, allows_info, change)?;
            each_selector(&mut binary.rhs, allows_info, change)
        }
        Expr::Paren(paren) => each_selector(&mut paren.expr, allows_info, change),
        Expr::Subquery(subquery) => each_selector(&mut subquery.expr, allows_info, change),
        Expr::VectorSelector(selector) => change(selector),
        Expr::MatrixSelector(selector) => change(&mut selector.vs),
        Expr::Call(call) if call.func.name == "info" && !allows_info => {
            Err(QueryError::Unrestricted("info() reads series that it does not name"))
        }
        Expr::Call(call) => {
            call.args.args.iter_mut().try_for_each(|argument| each_selector(argument, allows_info, change))
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(()),
        Expr::Extension(_) => Err(QueryError::Unrestricted("an extension of the parser")),
    }
}

/// Removes `ignoring ()`, which the printer omits. It has to stay in front of `group_left` and `group_right`.
fn omit_ignoring_nothing(modifier: &mut Option<BinModifier>) {
    if let Some(found) = modifier
        && matches!(&found.matching, Some(LabelModifier::Exclude(labels)) if labels.is_empty())
        && matches!(found.card, VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany)
    {
        found.matching = None;
        if *found == BinModifier::default() {
            *modifier = None;
        }
    }
}

/// Adds the matcher of the namespace to a selector. Sorts the matchers by their text, as the printer of the parser's
/// crate does, so that the printed query parses to an equal expression.
fn restrict(selector: &mut VectorSelector, namespace: Option<&Matcher>) -> Result<(), QueryError> {
    let matchers = &mut selector.matchers;
    if !matchers.or_matchers.is_empty() {
        return Err(QueryError::Unrestricted("`or` between matchers is not PromQL"));
    }
    if let Some(namespace) = namespace
        && !matchers.matchers.contains(namespace)
    {
        matchers.matchers.push(namespace.clone());
    }
    matchers.matchers.sort_by_cached_key(Matcher::to_string);
    Ok(())
}

/// Returns whether a text is a label name without quotes.
fn is_label(text: &str) -> bool {
    text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns whether a text can be the name of a pod, a namespace or a target.
fn is_object_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_pod_follows_from_its_workload() {
        for (kind, pod, expected) in [
            ("Deployment", "web-7d9f8c6b5-x2k4q", true),
            ("Rollout", "web-7d9f8c6b5-x2k4q", true),
            ("Deployment", "web-admin-7d9f8c6b5-x2k4q", false),
            ("Deployment", "web-admin-0", false),
            ("Deployment", "web-x2k4q", false),
            ("Deployment", "website-7d9f8c6b5-x2k4q", false),
            ("StatefulSet", "web-10", true),
            ("StatefulSet", "web-", false),
            ("StatefulSet", "web-0a", false),
            ("ReplicaSet", "web-x2k4q", true),
            ("ReplicaSet", "web-x2k4q7", false),
            ("ReplicaSet", "web", false),
        ] {
            assert_eq!(PodNames::from_kind(kind).is_pod("web", pod), expected, "{kind} {pod}");
        }
    }
}
