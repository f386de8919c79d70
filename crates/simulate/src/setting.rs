//! The values of `--set` and `--sweep`: changes of a scenario.

use std::fmt;

/// A value for a path: `--set path=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The HPA at which the path starts, as `NAME` or `NAMESPACE/NAME`. `None` if the setting names no HPA.
    pub hpa: Option<String>,
    /// The path, such as `spec.maxReplicas`.
    pub path: String,
    /// The value as YAML text.
    pub value: String,
}

/// Several values for a path, each for its own variant: `--sweep path=a,b,c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// One setting per value, with the same path.
    pub settings: Vec<Setting>,
}

/// The reason why a setting is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The path or the sign after it is missing.
    #[error("expected PATH=VALUE, such as spec.maxReplicas=20")]
    NoPath,
    /// The same, where several values are allowed.
    #[error("expected PATH=VALUE,VALUE, such as spec.behavior.scaleDown.stabilizationWindowSeconds=0,60,300")]
    NoValues,
    /// The path is invalid.
    #[error("{0:?} is not a valid path; use one such as spec.maxReplicas or workloads.web.startup")]
    Path(String),
}

/// One step of a path into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl std::str::FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (path, value) =
            text.split_once('=').filter(|(path, _)| !path.is_empty()).ok_or(SettingError::NoPath)?;
        let (hpa, path) = match path.split_once(':') {
            Some((hpa, path)) => (Some(hpa.to_owned()), path),
            None => (None, path),
        };
        steps(path)?;
        Ok(Self { hpa, path: path.to_owned(), value: value.to_owned() })
    }
}

impl std::str::FromStr for Sweep {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let all: Setting = text.parse().map_err(|_| SettingError::NoValues)?;
        let settings =
            values(&all.value).into_iter().map(|value| Setting { value, ..all.clone() }).collect::<Vec<_>>();
        Ok(Self { settings })
    }
}

/// Splits a list at its commas, except for commas within brackets or quotes.
fn values(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let (mut depth, mut quote) = (0_u32, None);
    for character in text.chars() {
        match (character, quote) {
            (',', None) if depth == 0 => {
                values.push(String::new());
                continue;
            }
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            ('"' | '\'', None) => quote = Some(character),
            (_, Some(open)) if open == character => quote = None,
            _ => {}
        }
        if let Some(value) = values.last_mut() {
            value.push(character);
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

/// Formats the setting as the name of a variant, without the prefixes `spec.`, `behavior.` and `flags.`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hpa) = &self.hpa {
            write!(f, "{hpa}:")?;
        }
        let path = self.path.strip_prefix("spec.").unwrap_or(&self.path);
        let path = path.strip_prefix("behavior.").unwrap_or(path);
        write!(f, "{}={}", path.strip_prefix("flags.").unwrap_or(path), self.value)
    }
}

/// Parses a path such as `a.b[0].c`. A dot within a name is written `\.`.
pub(crate) fn steps(path: &str) -> Result<Vec<Step>, SettingError> {
    let wrong = || SettingError::Path(path.to_owned());
    let mut steps = Vec::new();
    for part in path.replace("\\.", "\u{0}").split('.') {
        let (name, indexes) = part.split_once('[').map_or((part, None), |(name, rest)| (name, Some(rest)));
        if !name.is_empty() {
            steps.push(Step::Key(name.replace('\u{0}', ".")));
        } else if indexes.is_none() {
            return Err(wrong());
        }
        for index in indexes.iter().flat_map(|rest| rest.split('[')) {
            let index = index.strip_suffix(']').and_then(|index| index.parse().ok()).ok_or_else(wrong)?;
            steps.push(Step::Index(index));
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variant_name_omits_common_path_prefixes() {
        for (setting, name) in [
            (
                "spec.behavior.scaleDown.stabilizationWindowSeconds=60",
                "scaleDown.stabilizationWindowSeconds=60",
            ),
            ("web:spec.maxReplicas=20", "web:maxReplicas=20"),
            ("flags.horizontal-pod-autoscaler-tolerance=0.2", "horizontal-pod-autoscaler-tolerance=0.2"),
            ("workloads.web.startup=30s", "workloads.web.startup=30s"),
        ] {
            assert_eq!(setting.parse::<Setting>().unwrap().to_string(), name);
        }
    }
}
