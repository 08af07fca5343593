//! What a tenant has of a limit that is divided: [`shares`] has the rule for buckets, and [`holders`] that for slots, which all stores
//! keep.

mod ending;
mod hand;
mod holders;
mod shares;
mod times;
mod turns;

pub(super) use self::ending::Ending;
pub(super) use self::holders::{Holders, SlotScale, SlotShare};
pub(super) use self::shares::{Scale, Share, Shares};
