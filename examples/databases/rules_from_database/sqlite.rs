//! The rules in a SQLite file.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::task::spawn_blocking;
use tower_ratelimit::plan::{Resolved, Resolver};

use crate::rules::{FIRST_PLANS, Row, resolved};

type BoxError = Box<dyn Error + Send + Sync>;

/// The interval at which the file is checked for changes by another process.
const POLL: Duration = Duration::from_millis(500);

/// The time for which a reader waits for a writer.
const BUSY: Duration = Duration::from_secs(1);

const TABLES: &str = "
    create table if not exists plans (
        name text not null, policy text not null, quota text not null, primary key (name, policy)
    );
    create table if not exists customers (key text primary key, plan text not null);";

const PLAN_OF: &str = "
    select customers.plan, plans.policy, plans.quota
    from customers left join plans on plans.name = customers.plan
    where customers.key = ?1";

pub(crate) fn resolver(file: &str) -> Result<Resolver<String>, Box<dyn Error>> {
    let connection = open(file).map_err(|error| format!("DATABASE={file}: {error}"))?;
    let watched = open(file)?;
    // One lookup at a time: each takes microseconds.
    let connection = Arc::new(Mutex::new(connection));
    let resolver = Resolver::new(move |key: String| {
        let connection = Arc::clone(&connection);
        async move {
            let look_up = move || {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                look_up(&connection, &key)
            };
            Ok::<_, BoxError>(spawn_blocking(look_up).await??)
        }
    });
    let invalidated = resolver.clone();
    thread::spawn(move || watch(&watched, &invalidated));
    Ok(resolver)
}

fn open(file: &str) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    let tables = "select count(*) from sqlite_master where name in ('plans', 'customers')";
    let tables: u32 = connection.query_row(tables, [], |row| row.get(0))?;
    if tables == 0 {
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        for (name, policy, quota) in FIRST_PLANS {
            let insert = "insert or ignore into plans values (?1, ?2, ?3)";
            transaction.execute(insert, (name, policy, quota))?;
        }
        transaction.commit()?;
    }
    Ok(connection)
}

fn look_up(connection: &Connection, key: &str) -> rusqlite::Result<Resolved> {
    let mut statement = connection.prepare(PLAN_OF)?;
    let rows = statement.query_map([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<Row> = rows.collect::<Result<_, _>>()?;
    Ok(resolved(&rows))
}

/// Reads the version of the file, which changes with every commit of another connection. Nothing else in this process
/// writes.
fn watch(connection: &Connection, resolver: &Resolver<String>) {
    let mut seen: Option<i64> = None;
    loop {
        thread::sleep(POLL);
        let version = connection.query_row("pragma data_version", [], |row| row.get(0));
        match version {
            Ok(version) if seen == Some(version) => {}
            Ok(version) => {
                resolver.invalidate_all();
                seen = Some(version);
            }
            Err(error) => tracing::warn!(%error, "cannot read the version of the database"),
        }
    }
}
