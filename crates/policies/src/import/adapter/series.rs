//! The series that a rule renames to a metric.

use regex::{Captures, Regex};

use crate::import::Field;

/// The series that a rule selects: `seriesQuery` and `seriesFilters`.
#[derive(Debug)]
pub(super) struct Selection {
    /// The only name, if the query states one.
    name: Option<String>,
    /// The patterns for the name of a series. `true`: the name must match. `false`: it must not.
    names: Vec<(Regex, bool)>,
}

impl Selection {
    /// Reads the selection. The error is the invalid filter, or `None` for an invalid query.
    pub(super) fn read<'a>(query: &str, filters: &Field<'a>) -> Result<Self, Option<Field<'a>>> {
        let is_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_' || byte == ':';
        let name: String = query.trim().chars().take_while(|byte| is_name(*byte)).collect();
        let mut names = Vec::new();
        let matcher = Regex::new(r#"__name__\s*(=~|!~|!=|=)\s*"([^"]*)""#).map_err(|_| None)?;
        for matched in matcher.captures_iter(query) {
            let part = |index: usize| matched.get(index).map_or("", |part| part.as_str());
            let pattern = match part(1) {
                "=~" | "!~" => part(2).to_owned(),
                _ => regex::escape(part(2)),
            };
            // Prometheus matches whole values.
            let pattern = Regex::new(&format!("^(?:{pattern})$")).map_err(|_| None)?;
            names.push((pattern, part(1).starts_with('=')));
        }
        for filter in filters.items() {
            for (field, is) in [("is", true), ("isNot", false)] {
                let field = filter.at(field);
                let Some(pattern) =
                    field.value().and_then(|value| value.as_str()).filter(|text| !text.is_empty())
                else {
                    continue;
                };
                names.push((Regex::new(pattern).map_err(|_| Some(field.clone()))?, is));
            }
        }
        Ok(Self { name: (!name.is_empty()).then_some(name), names })
    }

    /// The series that `matches` and `renamed` rename to `metric`.
    pub(super) fn series(&self, matches: &Regex, renamed: &str, metric: &str) -> Option<String> {
        let name = self.name.clone().or_else(|| invert(matches.as_str(), renamed, metric))?;
        let is_selected = self.names.iter().all(|(pattern, is)| pattern.is_match(&name) == *is);
        let mut expanded = String::new();
        matches.captures(&name)?.expand(renamed, &mut expanded);
        (is_selected && expanded == metric).then_some(name)
    }
}

/// A name that a pattern of literals and groups renames to `metric`. The caller checks the name.
fn invert(pattern: &str, renamed: &str, metric: &str) -> Option<String> {
    let reference = Regex::new(r"\$(?:\{([0-9]+)\}|([0-9A-Za-z_]+))").ok()?;
    let number = |reference: &Captures<'_>| {
        let digits = reference.get(1).or_else(|| reference.get(2))?;
        digits.as_str().parse::<usize>().ok()
    };
    let (mut expression, mut groups, mut end) = ("^".to_owned(), Vec::new(), 0);
    for captures in reference.captures_iter(renamed) {
        let whole = captures.get(0)?;
        expression.push_str(&regex::escape(renamed.get(end..whole.start())?));
        end = whole.end();
        // A reference to a group that does not exist expands to the empty text.
        if let Some(group) = number(&captures) {
            expression.push_str("(.*)");
            groups.push(group);
        }
    }
    expression.push_str(&regex::escape(renamed.get(end..)?));
    expression.push('$');
    let found = Regex::new(&expression).ok()?.captures(metric)?;
    let value = |group: usize| {
        let at = groups.iter().position(|it| *it == group)?;
        found.get(at + 1).map(|value| value.as_str())
    };
    if let Some(whole) = value(0) {
        return Some(whole.to_owned());
    }
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let mut rest = pattern.strip_suffix('$').unwrap_or(pattern);
    let (mut name, mut group) = (String::new(), 0);
    while let Some(next) = rest.chars().next() {
        if next == '(' {
            let close = rest.find(')')?;
            let inner = rest.get(1..close)?;
            if inner.contains('(') {
                return None;
            }
            group += 1;
            name.push_str(value(group)?);
            rest = rest.get(close + 1..)?;
        } else if next.is_ascii_alphanumeric() || next == '_' || next == ':' {
            name.push(next);
            rest = rest.get(1..)?;
        } else {
            return None;
        }
    }
    Some(name)
}
