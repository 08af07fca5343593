//! The state of the limits in a file, over a restart.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tower_ratelimit::MemoryStore;

/// The time between two snapshots.
const AGAIN: Duration = Duration::from_secs(60);

/// The store in this process, and the file that has its state.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    store: MemoryStore,
    /// Held while the file is written: the snapshot of a minute and that of the end write the same new file.
    writing: Arc<Mutex<()>>,
}

impl StateFile {
    /// Opens a store with what the file has. A file that is none of ours is set aside, and the store is empty.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let mut store = MemoryStore::new();
        match fs::read(path) {
            Ok(bytes) => match store.restore(&bytes) {
                Ok(restored) => store = restored,
                Err(error) => {
                    let aside = beside(path, "broken");
                    fs::rename(path, &aside).map_err(|error| wrong(path, &error))?;
                    tracing::warn!(
                        "--state: {}: {error}; it is {} now, and the limits begin without what was used",
                        path.display(),
                        aside.display()
                    );
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(wrong(path, &error)),
        }
        let state = Self {
            path: path.to_owned(),
            store,
            writing: Arc::default(),
        };
        // A folder that cannot be written would be found at the end of the process, too late. The file itself is left alone: the
        // process may end before it serves, and another one may use it.
        let tried = beside(path, "tried");
        File::create(&tried).map_err(|error| wrong(path, &error))?;
        match fs::remove_file(&tried) {
            // Another process has removed it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(wrong(path, &error));
            }
            _ => {}
        }
        Ok(state)
    }

    pub(super) fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    /// Writes the file each minute for as long as the process runs.
    pub(super) async fn keep(self) {
        loop {
            sleep(AGAIN).await;
            self.save().await;
        }
    }

    /// Writes the file. If that fails, the one before it stays.
    pub(super) async fn save(&self) {
        let state = self.clone();
        let written = tokio::task::spawn_blocking(move || state.write()).await;
        if let Ok(Err(error)) = written {
            tracing::warn!("{}", wrong(&self.path, &error));
        }
    }

    fn write(&self) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let new = beside(&self.path, "new");
        let mut file = File::create(&new)?;
        file.write_all(&self.store.snapshot())?;
        // After a crash of the machine the name has the old bytes or all of the new ones.
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

/// Returns the path with another ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn wrong(path: &Path, error: &io::Error) -> String {
    format!(
        "--state: {}: {error}; write the path of a file in a folder that this user may write",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_file_is_written_each_minute_and_not_at_the_start() {
        let path = std::env::temp_dir().join(format!("ratelimitd-state-{}", std::process::id()));
        let state = StateFile::open(&path).unwrap();
        let keeping = tokio::spawn(state.clone().keep());
        assert!(!path.exists());
        sleep(AGAIN + Duration::from_secs(1)).await;
        assert_eq!(fs::read(&path).unwrap(), state.store.snapshot());
        keeping.abort();
        fs::remove_file(path).unwrap();
    }
}
