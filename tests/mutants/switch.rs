//! Says whether a mutant is on. The copy of the workspace has it in each crate with mutants.

use std::cell::RefCell;
use std::collections::HashSet;
use std::env;
use std::fs::File;
use std::io::Write as _;
use std::sync::LazyLock;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

static ON: LazyLock<Option<u64>> = LazyLock::new(|| {
    let number = env::var("MUTANT").ok()?;
    Some(number.parse().expect("MUTANT is a number"))
});

/// Gets a line for each mutant and each thread that comes by it: its number, the milliseconds since 1970, and the name of the thread,
/// which is that of its test.
static REACHED: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = env::var_os("MUTANTS_REACHED")?;
    let file = File::options().create(true).append(true).open(path);
    Some(file.expect("MUTANTS_REACHED is a file"))
});

thread_local! {
    static BY_THIS_THREAD: RefCell<HashSet<u64>> = RefCell::default();
}

pub(crate) fn is_on(mutant: u64) -> bool {
    if let Some(mut file) = REACHED.as_ref() {
        // A thread that ends has said what it came by.
        let is_new = BY_THIS_THREAD.try_with(|reached| reached.borrow_mut().insert(mutant));
        if is_new.unwrap_or(false) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.expect("a time after 1970").as_millis();
            let thread = thread::current();
            let line = format!("{mutant} {now} {}\n", thread.name().unwrap_or("-"));
            file.write_all(line.as_bytes()).expect("a file that can be written");
        }
    }
    *ON == Some(mutant)
}
