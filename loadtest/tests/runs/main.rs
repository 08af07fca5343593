//! The program itself, over sockets, against servers in this process.

mod aims;
mod checks;
mod json;
mod loads;
mod server;
