//! Zone data that is replaced while the program runs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use tower_ratelimit::calendar::Zone;
use tower_ratelimit::{Decision, ManualClock, MemoryStore, Micros};
use tower_ratelimit_config::{Config, Watched};

use crate::folder::Folder;
use crate::scene::now;

const FILE: &str = "
[policies.calendar]
algorithm = \"calendar-day\"
limit = 3
zone = \"Test/Moving\"
key = \"global\"

[policies.hours]
quota = \"3/day\"
key = \"global\"
hours = { zone = \"Test/Moving\", limits = { \"22:00-06:00\" = 6 } }
";

/// The folder of the zone data, which a process reads once, when it first names a zone.
const ZONE_DATA: &str = "TZDIR";

/// 09:00 in UTC, on 2026-01-01.
const NINE: u64 = 1_767_258_000_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// Compiled zone data of a clock that is so many hours ahead of UTC all year (RFC 8536).
fn zone_data(hours_ahead: i32) -> Vec<u8> {
    let mut block = b"TZif2".to_vec();
    block.extend([0; 15]);
    // No transition, one type of local time, and four bytes of its name.
    for count in [0_u32, 0, 0, 0, 1, 4] {
        block.extend(count.to_be_bytes());
    }
    block.extend((hours_ahead * 3_600).to_be_bytes());
    block.extend([0, 0]);
    block.extend(b"ABC\0");
    // Once with short times, once with long ones.
    let mut data = block.repeat(2);
    // POSIX counts hours to the west.
    data.extend(format!("\nABC{}\n", -hours_ahead).bytes());
    data
}

fn set_clocks(zones: &Path, hours_ahead: i32) {
    let zones = zones.join("Test");
    fs::create_dir_all(&zones).unwrap();
    // As a package manager does: no reader sees half a file.
    fs::write(zones.join("new"), zone_data(hours_ahead)).unwrap();
    fs::rename(zones.join("new"), zones.join("Moving")).unwrap();
}

/// Each policy that denies, with its limit and the wait that it tells.
fn denied(watched: &Watched, cost: u32) -> Vec<(String, u32, Duration)> {
    let decision: Decision = now(watched.limiter().peek("k", cost)).unwrap();
    let policies = decision.policies();
    let denied = policies.filter_map(|(name, outcome)| {
        let wait = outcome.retry_after()?;
        Some((name.to_owned(), outcome.limit(), wait))
    });
    denied.collect()
}

/// The clocks of the zone are set from 14 hours ahead of UTC to 2 hours ahead, and only then the configuration is reloaded.
#[test]
fn a_reload_reads_new_zone_data_and_what_was_used_stays_used() {
    let folder = Folder::new("zone-data");
    let zones = folder.file().with_file_name("zones");
    if env::var_os(ZONE_DATA).is_none_or(|data| !Path::new(&data).join("Test").exists()) {
        // The environment of a running process cannot be changed.
        set_clocks(&zones, 14);
        let this = "zone_data::a_reload_reads_new_zone_data_and_what_was_used_stays_used";
        let mut process = Command::new(env::current_exe().unwrap());
        let ran = process
            .args(["--exact", this])
            .env(ZONE_DATA, &zones)
            .output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let zones = env::var_os(ZONE_DATA).unwrap();
    let zones = Path::new(&zones);

    let clock = ManualClock::new();
    clock.set_micros(Micros::new(NINE));
    fs::write(folder.file(), FILE).unwrap();
    let builder = Config::builder().store(MemoryStore::new().clock(clock.clone()));
    let watched = builder.read(folder.file()).unwrap().watch().unwrap();
    // 23:00 on the clocks of the zone.
    assert!(now(watched.limiter().check("k", 3)).unwrap().is_allowed());
    let wanted = [(String::from("calendar"), 3, HOUR)];
    assert_eq!(denied(&watched, 1), wanted);

    let before = Zone::named("Test/Moving").unwrap();
    set_clocks(zones, 2);
    assert_eq!(watched.reload().unwrap().version(), 1);
    assert_ne!(Zone::named("Test/Moving").unwrap(), before);
    // 11:00 on the clocks: the day of the window ends in 13 hours, and the night begins in 11.
    let wanted = [
        (String::from("calendar"), 3, 13 * HOUR),
        (String::from("hours"), 3, 11 * HOUR),
    ];
    assert_eq!(denied(&watched, 1), wanted);
    // The old window ends, and what was charged in it counts to the end of the new one.
    for hour in [1, 11, 12] {
        clock.set_micros(Micros::new(NINE + 3_600_000_000 * hour));
        let names: Vec<_> = denied(&watched, 1)
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        let wanted: &[&str] = if hour < 11 {
            &["calendar", "hours"]
        } else {
            &["calendar"]
        };
        assert_eq!(names, wanted, "{hour} hours later");
    }
    clock.set_micros(Micros::new(NINE + 3_600_000_000 * 13));
    assert_eq!(denied(&watched, 3), []);
}
