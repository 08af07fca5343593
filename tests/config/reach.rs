//! The time until a change is in force.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_ratelimit_config::Config;

use crate::folder::Folder;
use crate::scene::{get, send};

/// The directory is behind a link that is swapped where nothing is watched: only the poll can find the change. The clock is
/// that of the runtime, which does not go on while the file is read.
#[tokio::test(start_paused = true)]
async fn a_change_without_an_event_is_in_force_after_six_seconds() {
    let folder = Folder::new("reach");
    let link = folder.path().join("current");
    let swap = |limit: u32| {
        let data = folder.path().join(format!("data-{limit}"));
        fs::create_dir_all(&data).unwrap();
        let text = format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
        fs::write(data.join("limits.toml"), text).unwrap();
        let _ = fs::remove_file(&link);
        symlink(data, &link).unwrap();
    };
    swap(10);
    let watched = Config::read(link.join("limits.toml"))
        .unwrap()
        .watch()
        .unwrap();
    let layer = watched.layer();
    let mut slowest = Duration::ZERO;
    for limit in 20..40 {
        sleep(Duration::from_millis(370)).await;
        swap(limit);
        let begun = Instant::now();
        let policy = format!("\"a\";q={limit};w=86400");
        while send(&layer, get("/")).policies.as_deref() != Some(&policy) {
            sleep(Duration::from_millis(10)).await;
            assert!(begun.elapsed() <= Duration::from_secs(6), "{limit}");
        }
        slowest = slowest.max(begun.elapsed());
    }
    // By the poll, and not by events.
    assert!(slowest > Duration::from_secs(4), "{slowest:?}");
}
