use std::hash::Hasher;

/// Hashes a number that is a hash already, in one of `SHARDS` shards that its last bits choose. These bits
/// are equal in all of a shard, so they are moved to the end.
#[derive(Debug, Default)]
pub struct Hashed<const SHARDS: usize>(u64);

impl<const SHARDS: usize> Hasher for Hashed<SHARDS> {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_right(SHARDS.trailing_zeros());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
