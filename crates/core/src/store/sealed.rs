/// Keeps [`Store`](super::Store) and [`Backend`](super::Backend) to the crates of this workspace, so that both can grow.
pub trait Sealed {}
