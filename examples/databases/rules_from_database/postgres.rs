//! The rules in PostgreSQL.

use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Socket, Statement};
use tower_ratelimit::plan::{Resolved, Resolver};

use crate::rules::{FIRST_PLANS, resolved};

type BoxError = Box<dyn Error + Send + Sync>;

/// The interval at which the tables are compared with their last fingerprint.
const POLL: Duration = Duration::from_secs(1);

/// The timeout of a connection attempt and of a poll.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause before the next connection attempt after the server was lost.
const PAUSE: Duration = Duration::from_millis(250);

/// The triggers notify listeners at once when a table changes.
const TABLES: &str = "
    create table plans (
        name text not null, policy text not null, quota text not null, primary key (name, policy)
    );
    create table customers (key text primary key, plan text not null);
    create or replace function rules_changed() returns trigger language plpgsql
        as $$ begin notify rules; return null; end $$;
    create trigger rules_changed after insert or update or delete or truncate on plans
        for each statement execute function rules_changed();
    create trigger rules_changed after insert or update or delete or truncate on customers
        for each statement execute function rules_changed();";

const HAS_TABLES: &str =
    "select to_regclass('plans') is not null or to_regclass('customers') is not null";

const PLAN_OF: &str = "
    select customers.plan, plans.policy, plans.quota
    from customers left join plans on plans.name = customers.plan
    where customers.key = $1";

/// A fingerprint of both tables. It reads all rows; for millions of rows, let a trigger keep a number.
const FINGERPRINT: &str = "
    select (select count(*) || ' ' || coalesce(sum(hashtextextended(plans::text, 0)), 0) from plans)
        || ' ' || (select count(*) || ' ' || coalesce(sum(hashtextextended(customers::text, 0)), 0) from customers)";

/// The connection to the server, while there is one.
type Current = Arc<Mutex<Option<Arc<Session>>>>;

struct Session {
    client: Client,
    plan_of: Statement,
    fingerprint: Statement,
    /// Notified by the server when a table changes, or when the connection ends.
    hint: Arc<Notify>,
}

pub(crate) async fn resolver(url: &str) -> Result<Resolver<String>, Box<dyn Error>> {
    let config: tokio_postgres::Config =
        url.parse().map_err(|error| format!("DATABASE: {error}"))?;
    let session = connect(&config).await;
    let session = session.map_err(|error| format!("DATABASE: {error}"))?;
    let current: Current = Arc::new(Mutex::new(Some(Arc::new(session))));
    let shared = Arc::clone(&current);
    let resolver = Resolver::new(move |key: String| {
        let session = lock(&shared);
        async move { look_up(session, &key).await }
    });
    tokio::spawn(keep(config, current, resolver.clone()));
    Ok(resolver)
}

async fn look_up(session: Option<Arc<Session>>, key: &str) -> Result<Resolved, BoxError> {
    let session = session.ok_or("there is no connection to PostgreSQL")?;
    // Text in PostgreSQL has no zero bytes.
    if key.contains('\0') {
        return Ok(Resolved::NotFound);
    }
    let rows = session.client.query(&session.plan_of, &[&key]).await?;
    let row = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    let rows: Result<Vec<_>, tokio_postgres::Error> = rows.iter().map(row).collect();
    Ok(resolved(&rows?))
}

/// Keeps a connection, and tells the resolver when a table has changed. Notifications may be lost; the poll finds
/// every change.
async fn keep(config: tokio_postgres::Config, current: Current, resolver: Resolver<String>) {
    let mut seen: Option<String> = None;
    loop {
        let Some(session) = lock(&current) else {
            sleep(PAUSE).await;
            match connect(&config).await {
                Ok(session) => {
                    tracing::info!("connected to PostgreSQL again");
                    put(&current, Some(Arc::new(session)));
                }
                Err(error) => tracing::debug!(%error, "PostgreSQL is away"),
            }
            continue;
        };
        match poll(&session).await {
            Ok(fingerprint) if seen.as_ref() == Some(&fingerprint) => {
                // Returns early after a notification.
                let _ = timeout(POLL, session.hint.notified()).await;
            }
            Ok(fingerprint) => {
                resolver.invalidate_all();
                seen = Some(fingerprint);
            }
            Err(error) => {
                tracing::warn!(%error, "PostgreSQL is away; customers keep the plans that are known");
                put(&current, None);
            }
        }
    }
}

async fn poll(session: &Session) -> Result<String, BoxError> {
    let row = session.client.query_one(&session.fingerprint, &[]);
    Ok(timeout(PATIENCE, row).await??.try_get(0)?)
}

async fn connect(config: &tokio_postgres::Config) -> Result<Session, BoxError> {
    let connecting = async {
        let (client, connection) = config.connect(NoTls).await?;
        let hint = Arc::new(Notify::new());
        tokio::spawn(listen(connection, Arc::clone(&hint)));
        create_tables(&client).await?;
        client.batch_execute("listen rules").await?;
        Ok::<_, tokio_postgres::Error>(Session {
            plan_of: client.prepare(PLAN_OF).await?,
            fingerprint: client.prepare(FINGERPRINT).await?,
            client,
            hint,
        })
    };
    Ok(timeout(PATIENCE, connecting).await??)
}

/// Creates the tables with two plans, unless they exist.
async fn create_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    let has_tables: bool = client.query_one(HAS_TABLES, &[]).await?.try_get(0)?;
    if has_tables {
        return Ok(());
    }
    let row = |(name, policy, quota)| format!("('{name}', '{policy}', '{quota}')");
    let rows = FIRST_PLANS.map(row).join(", ");
    let all = format!("begin; {TABLES} insert into plans values {rows}; commit");
    client.batch_execute(&all).await
}

/// Drives the connection until it ends.
async fn listen(
    mut connection: Connection<Socket, tokio_postgres::tls::NoTlsStream>,
    hint: Arc<Notify>,
) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if matches!(message, AsyncMessage::Notification(_)) {
            hint.notify_one();
        }
    }
    hint.notify_one();
}

fn lock(current: &Current) -> Option<Arc<Session>> {
    let current = current.lock().unwrap_or_else(PoisonError::into_inner);
    current.clone()
}

fn put(current: &Current, session: Option<Arc<Session>>) {
    *current.lock().unwrap_or_else(PoisonError::into_inner) = session;
}
