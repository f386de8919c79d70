//! Opens the page in the user's browser.
//!
//! Other users of the machine can read the arguments of programs. The browser therefore receives the path of
//! a file that only the user can read, and the file contains the address with its token.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::explain::escape::html;
use cluster::platform;

/// The file for the browser. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Browser {
    directory: PathBuf,
}

/// The browser cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open a browser: {0}; open the address above")]
pub(super) struct BrowserError(#[from] io::Error);

impl Browser {
    /// Opens the browser at an address.
    pub(super) fn open(url: &str) -> Result<Self, BrowserError> {
        let (program, arguments) = opener();
        Self::open_with(directory(""), url, program, arguments)
    }

    fn open_with(
        directory: PathBuf,
        url: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self, BrowserError> {
        let browser = Self::write(directory, url)?;
        let started = Command::new(program)
            .args(arguments)
            .arg(browser.file())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // The process is not awaited, because it exits on its own or with the browser.
        started.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        Ok(browser)
    }

    fn write(directory: PathBuf, url: &str) -> io::Result<Self> {
        platform::create_private_directory(&directory)?;
        let browser = Self { directory };
        let url = html(url);
        fs::write(
            browser.file(),
            format!(
                "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"0; url={url}\">\n\
                 <title>Concertina</title>\n<a href=\"{url}\">Open the console</a>\n"
            ),
        )?;
        Ok(browser)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("console.html")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // If the removal fails, the system's cleanup of temporary directories removes the file.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The temporary directory for this process's `console.html`.
fn directory(suffix: &str) -> PathBuf {
    std::env::temp_dir().join(format!("concertina-console-{}{suffix}", std::process::id()))
}

/// The program that opens a file with the user's browser.
fn opener() -> (&'static str, &'static [&'static str]) {
    if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("rundll32", &["url.dll,FileProtocolHandler"])
    } else {
        ("xdg-open", &[])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Browser, directory};

    #[test]
    fn machine_without_a_browser_is_an_error_with_advice() {
        let url = "http://127.0.0.1:1/0a/";
        let error = Browser::open_with(directory("-none"), url, "concertina-no-such-program", &[]);
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("cannot open a browser: concertina-no-such-program: "), "{text}");
        assert!(text.ends_with("; open the address above"), "{text}");
        assert!(!directory("-none").exists());
    }

    #[test]
    fn file_contains_the_address_until_the_end() {
        let browser = Browser::write(directory("-written"), "http://127.0.0.1:1/0a/").unwrap();
        let file = browser.file();
        assert!(fs::read_to_string(&file).unwrap().contains("url=http://127.0.0.1:1/0a/\""));
        drop(browser);
        assert!(!file.exists());
    }
}
