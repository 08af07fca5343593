use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::cell::Cell;
use super::page::{Behind, Page, Place, SLOTS};

/// The pages of a table, which become more one at a time (linear hashing, after Litwin, 1980).
///
/// Each page is split in its turn: half of its keys move to a new one, and nobody else waits.
/// Once all have been split, their number has doubled. Every page that there can ever be has its
/// place from the start, so that nothing moves that somebody may be reading.
#[derive(Debug)]
pub(super) struct Pages<C> {
    chunks: Box<[OnceLock<Chunk<C>>]>,
    /// How many pages there are at level 0; at each level above, twice as many.
    first: u64,
    most: u64,
    size: AtomicU64,
    behind: AtomicUsize,
}

type Chunk<C> = Box<[Page<C>; CHUNK]>;

/// Pages are allocated so many at a time.
const CHUNK: usize = 16;

/// How many there are at first, if so many are ever needed, so that few keys seldom share one.
const LEAST_FIRST: u64 = 16;

/// A table that is as full as it gets has this share of its slots taken.
const FULL: (u64, u64) = (3, 4);

/// How many times the first pages have doubled, and how many there are now.
#[derive(Clone, Copy)]
struct Size {
    level: u64,
    pages: u64,
}

const BITS_OF_PAGES: u32 = 48;

impl Size {
    fn of_word(word: u64) -> Self {
        Self {
            level: word >> BITS_OF_PAGES,
            pages: word & !(u64::MAX << BITS_OF_PAGES),
        }
    }

    fn word(self) -> u64 {
        self.level << BITS_OF_PAGES | self.pages
    }
}

/// A page as it was seen at one moment.
#[derive(Debug)]
pub(super) struct Sight<'a, C> {
    pub(super) page: &'a Page<C>,
    pub(super) index: usize,
    pub(super) seen: u64,
}

impl<C: Cell> Pages<C> {
    /// Room for so many keys, most of which comes when it is needed.
    pub(super) fn new(keys: usize) -> Self {
        let (full, of) = FULL;
        let wanted = (keys as u64 * of).div_ceil(full * SLOTS as u64);
        let mut level = 0;
        while wanted.div_ceil(1 << (level + 1)) > LEAST_FIRST {
            level += 1;
        }
        let first = wanted.div_ceil(1 << level).max(1);
        let most = first << level;
        let chunks = usize::try_from(most).unwrap_or(usize::MAX).div_ceil(CHUNK);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            first,
            most,
            size: AtomicU64::new(
                Size {
                    level: 0,
                    pages: first,
                }
                .word(),
            ),
            behind: AtomicUsize::new(0),
        }
    }

    /// How many pages there can be.
    pub(super) fn most(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// How many pages there are.
    #[expect(clippy::cast_possible_truncation, reason = "each has been allocated")]
    pub(super) fn len(&self) -> usize {
        self.size().pages as usize
    }

    #[inline]
    pub(super) fn page(&self, index: usize) -> &Page<C> {
        let chunk = || Box::new(array::from_fn(|_| Page::new()));
        let chunk = self.chunks[index / CHUNK].get_or_init(chunk);
        &chunk[index % CHUNK]
    }

    /// The page of this key.
    #[inline]
    pub(super) fn sight(&self, fingerprint: u64) -> Sight<'_, C> {
        loop {
            let size = self.size.load(Ordering::Acquire);
            let index = self.index(fingerprint, Size::of_word(size));
            let page = self.page(index);
            let seen = page.version.seen();
            // If the page was split meanwhile, the key may have moved.
            if self.size.load(Ordering::Acquire) == size {
                return Sight { page, index, seen };
            }
        }
    }

    /// Whether this is the page of this key.
    pub(super) fn is_page_of(&self, fingerprint: u64, index: usize) -> bool {
        self.index(fingerprint, self.size()) == index
    }

    /// Whether so many keys ask for more pages than there are.
    pub(super) fn are_too_few(&self, keys: usize) -> bool {
        let (full, of) = FULL;
        let pages = self.size().pages;
        pages < self.most && keys as u64 * of > pages * SLOTS as u64 * full
    }

    /// Whether some pages have been split of late, and others wait for their turn.
    pub(super) fn is_doubling(&self) -> bool {
        let Size { level, pages } = self.size();
        pages > self.first << level
    }

    /// Splits the page whose turn it is; only one thread at a time may do this. `moved` is told
    /// the page, which is still locked, and its other half, which nobody knows yet.
    pub(super) fn split(&self, moved: impl FnOnce(usize, usize)) {
        let size = self.size();
        if size.pages >= self.most {
            return;
        }
        let half = self.first << size.level;
        let (from, to) = (position(size.pages - half), position(size.pages));
        let (page, other) = (self.page(from), self.page(to));
        let (mut lock, _) = page.version.wait_and_lock();
        lock.changes();
        other.set_latest(page.latest());
        let pages = size.pages + 1;
        let next = Size {
            level: size.level + u64::from(pages == half * 2),
            pages,
        };
        for place in page.keys() {
            let fingerprint = place.fingerprint();
            let home = self.index(fingerprint, next);
            let target = if home == to {
                Some(self.room(other, fingerprint))
            } else {
                // Keys behind a page come forward when there is room.
                page.empty(fingerprint).filter(|_| place.is_behind())
            };
            if let Some(target) = target {
                target.take(fingerprint);
                place.slot().cell.move_to(&target.slot().cell);
                place.leave();
            }
        }
        moved(from, to);
        // Before the page is unlocked: whoever waits for it must look again where its key is.
        self.size.store(next.word(), Ordering::Release);
    }

    /// An empty slot for this key, on the page or behind it.
    pub(super) fn room<'a>(&self, page: &'a Page<C>, fingerprint: u64) -> Place<'a, C> {
        page.empty(fingerprint).unwrap_or_else(|| {
            let (place, is_made) = page.empty_behind();
            self.behind.fetch_add(is_made.into(), Ordering::Relaxed);
            place
        })
    }

    /// What all of it takes.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some());
        let pages = chunks.count() * CHUNK * size_of::<Page<C>>();
        let behind = self.behind.load(Ordering::Relaxed) * size_of::<Behind<C>>();
        size_of_val(&*self.chunks) + pages + behind
    }

    #[inline]
    fn size(&self) -> Size {
        Size::of_word(self.size.load(Ordering::Acquire))
    }

    /// The highest bits of a fingerprint choose among the first pages, the lowest among those
    /// that have been split off from each of them.
    #[inline]
    fn index(&self, fingerprint: u64, size: Size) -> usize {
        let (high, low) = (fingerprint >> 32, fingerprint & 0xffff_ffff);
        let first = (high * self.first) >> 32;
        let mask = !(u64::MAX << size.level);
        let of_next_level = first + self.first * (low & (mask << 1 | 1));
        if of_next_level < size.pages {
            return position(of_next_level);
        }
        position(first + self.first * (low & mask))
    }
}

/// There are no more pages than a `usize` counts.
#[expect(clippy::cast_possible_truncation, reason = "a page has an address")]
fn position(index: u64) -> usize {
    index as usize
}
