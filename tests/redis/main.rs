//! State in Redis, on real servers: each test starts its own.

#[path = "../support/mod.rs"]
mod support;

mod agreement;
mod answer_time;
mod apart;
mod calendars;
mod connecting;
mod counted_nodes;
mod damage;
mod denials;
mod drawn_slots;
mod either_or;
mod expiry;
mod factors;
mod fair;
mod fair_slots;
mod frozen;
mod guaranteed;
mod hours;
mod idle;
mod keys;
mod leases;
mod leaving;
mod logins;
mod nodes;
mod permissions;
mod plans;
mod refused_writes;
mod renewed_slots;
mod runtimes;
mod scene;
mod scripts;
mod sentinel;
mod shared_calls;
mod silence;
mod slots;
mod stand_in;
mod switch;
mod tls;
mod trees;
mod unknown_outcome;
mod waiting;
mod without;
