//! Tables as terminal text. [`Style`] escapes all text of the cluster.

use crate::explain::{Line, Role, Style, escape};

/// A cell: its emphasis and its text, not escaped.
pub(crate) type Cell = (Role, String);

/// Creates a cell without emphasis. An empty text becomes a dash.
pub(crate) fn plain(text: impl Into<String>) -> Cell {
    let text = text.into();
    (Role::Plain, if text.is_empty() { "-".to_owned() } else { text })
}

/// Renders rows with columns as wide as their widest cells. The last column is not padded.
pub(crate) fn render(head: &[&str], rows: &[Vec<Cell>], style: Style) -> String {
    let head = head.iter().map(|title| (Role::Strong, (*title).to_owned())).collect::<Vec<_>>();
    let all = [&head].into_iter().chain(rows);
    let mut widths = vec![0; head.len()];
    for row in all.clone() {
        for (width, (_, text)) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(text));
        }
    }
    let mut rendered = String::new();
    for row in all {
        let mut line = Line::new("");
        let last = row.len().saturating_sub(1);
        for (index, ((role, text), width)) in row.iter().zip(&widths).enumerate() {
            let padding = if index == last { 0 } else { (width + 1).saturating_sub(columns(text)) };
            line = line.with(*role, text.as_str()).plain(" ".repeat(padding));
        }
        rendered.push_str(&style.cut(&line));
        rendered.push('\n');
    }
    rendered
}

/// The width of a text on the terminal.
fn columns(text: &str) -> usize {
    escape::terminal(text).chars().count()
}

/// Renders one line of text.
pub(crate) fn line(text: impl Into<String>, style: Style) -> String {
    style.line(&Line::new("").plain(text), 0) + "\n"
}

/// Renders a label and a text.
pub(crate) fn labelled(label: &'static str, text: impl Into<String>, style: Style) -> String {
    style.line(&Line::new(label).plain(text), 0) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_cluster_is_escaped_and_aligned() {
        let rows = [vec![plain("a\u{1b}[2J"), plain("x")], vec![plain(""), plain("y")]];
        let text = render(&["NAME", "REST"], &rows, Style::default());
        assert_eq!(text, "NAME       REST\na\\u{1b}[2J x\n-          y\n");
    }
}
