use std::hash::Hasher;

/// The hash of a number that is a hash, in a table that is cut into so many shards by its last bits: these are the same in
/// all of a shard, so they come last.
#[derive(Default)]
pub(super) struct Hashed<const SHARDS: usize>(u64);

impl<const SHARDS: usize> Hasher for Hashed<SHARDS> {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_right(SHARDS.trailing_zeros());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
