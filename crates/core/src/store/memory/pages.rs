//! The pages of a table, and how their number grows.
//!
//! A table that is copied as a whole stops all requests for milliseconds. So pages are split one at a time.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::cell::Cell;
use super::page::{OverflowSlots, Page, SLOTS, SlotRef};

/// The pages of a table, which grow in number one at a time (linear hashing, Litwin, 1980).
///
/// Each page is split in its turn: half of its keys move to a new page, and no other page is locked. Once all
/// have been split, their number has doubled. Every page that can ever exist has its place from the start, so
/// nothing moves while a thread may read it.
#[derive(Debug)]
pub(super) struct Pages<C> {
    chunks: Box<[OnceLock<Chunk<C>>]>,
    /// The number of pages at level 0. Each level doubles it.
    first: u64,
    most: u64,
    size: AtomicU64,
    behind: AtomicUsize,
}

type Chunk<C> = Box<[Page<C>; CHUNK]>;

/// The number of pages that are allocated at once.
const CHUNK: usize = 16;

/// The least number of pages at first, if the bound allows it, so that few keys seldom share a page.
const LEAST_FIRST: u64 = 16;

/// The share of slots that are taken when the table is at its fullest.
const FULL: (u64, u64) = (3, 4);

/// How far the first pages have doubled: the number of pages now, and which of a fingerprint's lowest bits
/// chose among the pages before they were split again.
#[derive(Clone, Copy)]
struct Size {
    mask: u64,
    pages: u64,
}

impl Size {
    #[inline]
    fn of_word(word: u64) -> Self {
        Self {
            mask: word >> u32::BITS,
            pages: word & u64::from(u32::MAX),
        }
    }

    /// Neither number exceeds the number of pages, which is below 2^32.
    fn word(self) -> u64 {
        self.mask << u32::BITS | self.pages
    }
}

/// A page as it was found at one moment.
#[derive(Debug)]
pub(super) struct FoundPage<'a, C> {
    pub(super) page: &'a Page<C>,
    pub(super) index: usize,
    pub(super) seen: u64,
}

impl<C: Cell> Pages<C> {
    /// Creates pages for this many keys, most of which are allocated when they are needed.
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
                    mask: 0,
                    pages: first,
                }
                .word(),
            ),
            behind: AtomicUsize::new(0),
        }
    }

    /// Returns how many pages there can be.
    pub(super) fn most(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Returns how many pages there are.
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

    /// Returns the page of this key and its index, which may be stale while the page is being split.
    #[inline]
    pub(super) fn at(&self, fingerprint: u64) -> (&Page<C>, usize) {
        let index = self.index(fingerprint, self.size());
        (self.page(index), index)
    }

    /// Returns the page of this key, or `None` if it is retired.
    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<FoundPage<'_, C>> {
        loop {
            let size = self.size.load(Ordering::Acquire);
            let index = self.index(fingerprint, Size::of_word(size));
            let page = self.page(index);
            let seen = page.seqlock.seen()?;
            // If the page was split meanwhile, the key may have moved.
            if self.size.load(Ordering::Acquire) == size {
                return Some(FoundPage { page, index, seen });
            }
        }
    }

    /// Returns whether this is the page of this key.
    pub(super) fn is_page_of(&self, fingerprint: u64, index: usize) -> bool {
        self.index(fingerprint, self.size()) == index
    }

    /// Returns whether this many keys need more pages than there are.
    pub(super) fn are_too_few(&self, keys: usize) -> bool {
        let (full, of) = FULL;
        let pages = self.size().pages;
        pages < self.most && keys as u64 * of > pages * SLOTS as u64 * full
    }

    /// Returns whether a doubling has begun and is not finished.
    pub(super) fn is_doubling(&self) -> bool {
        let Size { mask, pages } = self.size();
        pages > self.first * (mask + 1)
    }

    /// Splits the next page; only one thread at a time may do this. Calls `moved` with the index of the page,
    /// which is still locked, and that of its other half, which no other thread can find yet.
    pub(super) fn split(&self, moved: &mut dyn FnMut(usize, usize)) {
        let size = self.size();
        if size.pages >= self.most {
            return;
        }
        let half = self.first * (size.mask + 1);
        let (from, to) = (position(size.pages - half), position(size.pages));
        let (page, other) = (self.page(from), self.page(to));
        let pages = size.pages + 1;
        let mask = if pages == half * 2 {
            size.mask << 1 | 1
        } else {
            size.mask
        };
        let next = Size { mask, pages };
        let Some((mut lock, _)) = page.seqlock.wait_and_lock() else {
            // The keys are elsewhere, including those of the other half.
            other.seqlock.retire_unseen();
            self.size.store(next.word(), Ordering::Release);
            return;
        };
        lock.changes();
        other.set_latest(page.latest());
        for place in page.keys() {
            let fingerprint = place.fingerprint();
            let home = self.index(fingerprint, next);
            let target = if home == to {
                Some(self.room(other, fingerprint))
            } else {
                // Keys in overflow slots move to the page when there is room.
                page.empty(fingerprint).filter(|_| place.is_behind())
            };
            if let Some(target) = target {
                target.take(fingerprint);
                place.slot().cell.move_to(&target.slot().cell);
                place.leave();
            }
        }
        moved(from, to);
        // Stored before the page is unlocked, so that a thread that waits for the page looks up again where
        // its key is.
        self.size.store(next.word(), Ordering::Release);
    }

    /// Returns an empty slot for this key, on the page or in its overflow.
    pub(super) fn room<'a>(&self, page: &'a Page<C>, fingerprint: u64) -> SlotRef<'a, C> {
        page.empty(fingerprint).unwrap_or_else(|| {
            let (place, is_made) = page.empty_behind();
            self.behind.fetch_add(is_made.into(), Ordering::Relaxed);
            place
        })
    }

    /// Returns the memory of all pages.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some());
        let pages = chunks.count() * CHUNK * size_of::<Page<C>>();
        let behind = self.behind.load(Ordering::Relaxed) * size_of::<OverflowSlots<C>>();
        size_of_val(&*self.chunks) + pages + behind
    }

    #[inline]
    fn size(&self) -> Size {
        Size::of_word(self.size.load(Ordering::Acquire))
    }

    /// The highest bits of a fingerprint choose among the first pages, the lowest among those that were split
    /// off from each of them.
    #[inline]
    fn index(&self, fingerprint: u64, size: Size) -> usize {
        let (high, low) = (fingerprint >> 32, fingerprint & 0xffff_ffff);
        let first = (high * self.first) >> 32;
        let of_next_level = first + self.first * (low & (size.mask << 1 | 1));
        if of_next_level < size.pages {
            return position(of_next_level);
        }
        position(first + self.first * (low & size.mask))
    }
}

/// The number of pages always fits a `usize`.
#[expect(clippy::cast_possible_truncation, reason = "a page has an address")]
fn position(index: u64) -> usize {
    index as usize
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;
    use crate::store::memory::cell::Word;

    const BOUNDS: [usize; 7] = [1, 15, 64, 1_000, 30_000, 100_000, 1_000_000];

    /// Pseudo-random numbers, the same in each run.
    fn fingerprints() -> impl Iterator<Item = u64> + Clone {
        (1_u64..).map(|number| {
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
        })
    }

    fn put(pages: &Pages<Word>, fingerprint: u64) {
        let page = pages.find(fingerprint).unwrap().page;
        pages.room(page, fingerprint).take(fingerprint);
    }

    #[test]
    fn there_can_be_as_many_pages_as_the_bound_fills() {
        for bound in BOUNDS {
            let pages = Pages::<Word>::new(bound);
            let wanted = (bound as u64).div_ceil(48);
            assert!(pages.first >= LEAST_FIRST.min(wanted), "{bound}");
            assert!(pages.most() as u64 >= pages.most, "{bound}");
            assert!(
                (wanted..=wanted + wanted / 8 + 1).contains(&pages.most),
                "{bound}"
            );
            // The first pages double until the number is at its maximum, and never exceed that.
            assert!((pages.most / pages.first).is_power_of_two());
            assert_eq!(pages.most % pages.first, 0);
            assert_eq!(pages.len() as u64, pages.first);
        }
    }

    #[test]
    fn pages_are_split_until_there_are_as_many_as_there_can_be() {
        for bound in [1, 1_000, 30_000] {
            let pages = Pages::<Word>::new(bound);
            let mut halves = Vec::new();
            for _ in 0..2 * pages.most {
                let before = pages.len();
                pages.split(&mut |page, half| halves.push((page, half, before)));
            }
            assert_eq!(pages.len() as u64, pages.most, "{bound}");
            assert_eq!(halves.len() as u64, pages.most - pages.first, "{bound}");
            for (page, half, before) in halves {
                assert_eq!(half, before, "the new page is the last");
                assert!(page < half);
            }
        }
    }

    #[test]
    fn at_every_size_each_key_has_one_of_the_pages_that_there_are() {
        for bound in BOUNDS {
            let pages = Pages::<Word>::new(bound);
            let mut mask = 0;
            let step = (pages.most / 200).max(1);
            let sizes = (pages.first..=pages.most).step_by(usize::try_from(step).unwrap());
            for count in sizes {
                while pages.first * (mask + 1) * 2 <= count {
                    mask = mask << 1 | 1;
                }
                let size = Size { mask, pages: count };
                assert_eq!(Size::of_word(size.word()).pages, count);
                for fingerprint in fingerprints().take(200).chain([0, 1, u64::MAX]) {
                    assert!((pages.index(fingerprint, size) as u64) < count, "{bound}");
                }
            }
        }
    }

    #[test]
    fn while_pages_are_split_every_key_is_found_where_it_is_looked_for() {
        let pages = Pages::<Word>::new(20_000);
        let keys: Vec<u64> = fingerprints().take(8_000).collect();
        for key in &keys {
            put(&pages, *key);
        }
        // With so many keys on so few pages, some pages overflow.
        assert!(pages.behind.load(Ordering::Relaxed) > 0);
        let mut left = pages.most - pages.first;
        loop {
            for key in &keys {
                let page = pages.find(*key).unwrap().page;
                assert!(page.find(*key).is_some(), "{left} splits are left");
            }
            let all: usize = (0..pages.len())
                .map(|page| pages.page(page).keys().count())
                .sum();
            assert_eq!(all, keys.len());
            if left == 0 {
                break;
            }
            for _ in 0..left.min(17) {
                pages.split(&mut |_, _| {});
                left -= 1;
            }
        }
        for index in 0..pages.len() {
            let page = pages.page(index);
            for place in page.keys() {
                assert_eq!(pages.find(place.fingerprint()).unwrap().index, index);
                assert!(!place.is_behind(), "there is room before it");
            }
        }
    }

    #[test]
    fn a_split_moves_a_key_or_leaves_it_and_touches_no_other_page() {
        let pages = Pages::<Word>::new(20_000);
        for key in fingerprints().take(1_000) {
            put(&pages, key);
        }
        let on = |index: usize| -> Vec<u64> {
            pages
                .page(index)
                .keys()
                .map(|place| place.fingerprint())
                .collect()
        };
        let before: Vec<Vec<u64>> = (0..pages.len()).map(on).collect();
        let mut split = None;
        pages.split(&mut |page, half| split = Some((page, half)));
        let (page, half) = split.unwrap();
        for (index, keys) in before.iter().enumerate() {
            if index == page {
                let mut both = [on(page), on(half)].concat();
                both.sort_unstable();
                let mut keys = keys.clone();
                keys.sort_unstable();
                assert_eq!(both, keys);
                assert!(!on(page).is_empty() && !on(half).is_empty());
            } else {
                assert_eq!(on(index), *keys);
            }
        }
    }

    #[test]
    fn a_thread_that_has_seen_a_page_before_it_is_split_has_to_look_again() {
        let pages = Pages::<Word>::new(20_000);
        let mut seen = Vec::new();
        for key in fingerprints().take(500) {
            seen.push(pages.find(key).unwrap());
        }
        let mut split = None;
        pages.split(&mut |page, _| split = Some(page));
        for sight in seen {
            let stands = sight.page.seqlock.still_is(sight.seen);
            assert_eq!(stands, Some(sight.index) != split);
        }
    }
}
