//! The items of a report, as text and as a document.

use serde::{Serialize, Serializer};
use terminal::explain::{Line, Role, Style};
use terminal::words::counted;

/// The columns of the names of items.
const NAME: usize = 22;

/// The result of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// As intended.
    Good,
    /// Needs a look. Does not change the exit code.
    Warning,
    /// A problem.
    Problem,
}

impl Mark {
    fn sign(self) -> &'static str {
        match self {
            Self::Good => "√",
            Self::Warning => "‼",
            Self::Problem => "×",
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Good => Role::Good,
            Self::Warning => Role::Warn,
            Self::Problem => Role::Bad,
        }
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// One checked item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// The name of the item, such as `lease`.
    pub name: &'static str,
    /// The result.
    pub mark: Mark,
    /// The state and, unless it is as intended, the reason.
    pub text: String,
    /// The page of the repository about the item.
    pub page: &'static str,
}

/// Creates an item.
pub(crate) fn item(mark: Mark, name: &'static str, text: impl Into<String>, page: &'static str) -> Item {
    Item { name, mark, text: text.into(), page }
}

/// The items about the cluster, or about one installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// `cluster`, or the namespace and name of a Deployment.
    pub about: String,
    /// The items.
    pub items: Vec<Item>,
}

impl Section {
    /// Renders the section for a terminal.
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = style.line(&Line::new("").strong(self.about.as_str()), 0);
        text.push('\n');
        for Item { name, mark, text: state, page } in &self.items {
            let line = Line::new("").with(mark.role(), mark.sign());
            let line = line.plain(format!(" {name:NAME$} {state}"));
            let line = if *mark == Mark::Good { line } else { line.dim(format!(" ({page})")) };
            text.push_str(&style.line(&line, 2));
            text.push('\n');
        }
        text
    }
}

/// The answer as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'a> {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// The version of this program.
    pub(crate) version: &'static str,
    /// Whether the report is about the requirements of an installation.
    pub(crate) pre: bool,
    pub(crate) sections: &'a [Section],
    /// Whether no item is a problem.
    pub(crate) passed: bool,
}

/// Returns the numbers of problems and warnings, as the last line.
pub(crate) fn summary(sections: &[Section]) -> String {
    let count =
        |mark| sections.iter().flat_map(|section| &section.items).filter(|item| item.mark == mark).count();
    format!("{}, {}", counted(count(Mark::Problem), "problem"), counted(count(Mark::Warning), "warning"))
}

/// Returns whether no item is a problem.
pub(crate) fn passed(sections: &[Section]) -> bool {
    sections.iter().flat_map(|section| &section.items).all(|item| item.mark != Mark::Problem)
}
