//! Follows the file of `--advice`.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::advice::file::AdviceFile;
use crate::store::Store;

/// The pause between two checks of the file.
const INTERVAL: Duration = Duration::from_secs(5);

/// Reads the file now, and whenever it has changed. Does not end. After a failure, the last advice stays.
pub(super) async fn follow(store: Store, path: PathBuf) {
    let mut file = AdviceFile::new(path);
    loop {
        let read = spawn_blocking(move || {
            let read = file.read();
            (file, read)
        });
        let Ok((same, read)) = read.await else { return };
        file = same;
        match read {
            None => {}
            Some(Ok(advice)) => store.advised(advice),
            Some(Err(error)) => store.advice_failed(&error),
        }
        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests;
