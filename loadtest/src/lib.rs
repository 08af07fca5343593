#![doc = include_str!("../README.md")]

pub mod aim;
pub mod drive;
pub mod exchange;
pub mod info;
pub mod judge;
pub mod options;
pub mod report;
