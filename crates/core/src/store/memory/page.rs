//! A page of a table: the slots of some fifty keys, and where a key is in them.
//!
//! A key is found by comparing four fingerprints of one cache line. The tags are searched only for the few
//! keys that are elsewhere.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::seqlock::Seqlock;
use crate::clock::Micros;

/// Some tens of keys that are guarded together.
///
/// A key may be in any slot. It is looked up in its own four slots, which share a cache line, and then in
/// four others, which share one too. If it is in neither, the tags are searched, which have a byte for each
/// slot.
///
/// The page is read and written under its seqlock, which also guards its overflow slots.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Page<C> {
    pub(super) seqlock: Seqlock,
    latest: AtomicU64,
    /// The keys of a full page go here. When the table is at its fullest, one page in some hundreds has such
    /// keys.
    behind: OnceLock<Box<OverflowSlots<C>>>,
    tags: [AtomicU64; SLOTS / TAGS_IN_A_WORD],
    slots: [Slot<C>; SLOTS],
}

/// A few more slots, without tags. They are kept once they were needed: in time most pages of a table have
/// them, an eighth of the size of a page.
#[derive(Debug)]
pub(super) struct OverflowSlots<C> {
    slots: [Slot<C>; SLOTS_BEHIND],
    next: OnceLock<Box<Self>>,
}

impl<C: Default> Default for OverflowSlots<C> {
    fn default() -> Self {
        Self {
            slots: array::from_fn(|_| Slot::default()),
            next: OnceLock::new(),
        }
    }
}

const SLOTS_BEHIND: usize = 8;

/// A key, by its fingerprint, and its state.
#[derive(Debug, Default)]
pub(super) struct Slot<C> {
    fingerprint: AtomicU64,
    pub(super) cell: C,
}

impl<C> Slot<C> {
    #[inline]
    fn is_of(&self, fingerprint: u64) -> bool {
        self.fingerprint.load(Ordering::Relaxed) == fingerprint
    }
}

pub(super) const SLOTS: usize = 64;

/// The number of slots that are a key's own.
const OWN: usize = 4;

const TAGS_IN_A_WORD: usize = 8;
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;

/// The fingerprint of an empty slot.
const EMPTY: u64 = 0;

/// Returns the tag of a fingerprint: seven of its bits, and one that says that the slot is taken.
fn tag(fingerprint: u64) -> u64 {
    fingerprint >> 33 & 0x7f | 0x80
}

/// Returns the first of a key's own slots.
fn own(fingerprint: u64) -> usize {
    let slot = (fingerprint >> 24) as usize % SLOTS;
    slot & !(OWN - 1)
}

/// Returns the first of the four slots that a key takes when its own are taken.
fn second(fingerprint: u64) -> usize {
    let lines = SLOTS / OWN;
    // An odd number of lines apart, so that it is another line.
    let apart = ((fingerprint >> 40) as usize % lines) | 1;
    own(fingerprint) ^ (apart * OWN)
}

impl<C: Default> Page<C> {
    #[inline(never)]
    pub(super) fn new() -> Self {
        Self {
            seqlock: Seqlock::default(),
            latest: AtomicU64::new(0),
            behind: OnceLock::new(),
            tags: [const { AtomicU64::new(0) }; SLOTS / TAGS_IN_A_WORD],
            slots: array::from_fn(|_| Slot::default()),
        }
    }

    /// Returns an empty overflow slot, and whether memory was allocated for it.
    pub(super) fn empty_behind(&self) -> (SlotRef<'_, C>, bool) {
        let mut is_made = false;
        let mut link = &self.behind;
        loop {
            let behind = link.get_or_init(|| {
                is_made = true;
                Box::default()
            });
            let mut places = behind.slots.iter().map(SlotRef::behind);
            if let Some(place) = places.find(|place| !place.is_taken()) {
                return (place, is_made);
            }
            link = &behind.next;
        }
    }
}

impl<C> Page<C> {
    /// Returns the time of the latest charge to any of its keys.
    #[inline]
    pub(super) fn latest(&self) -> Micros {
        Micros::new(self.latest.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_latest(&self, latest: Micros) {
        self.latest.store(latest.get(), Ordering::Relaxed);
    }

    /// Returns the slot of this key.
    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<&Slot<C>> {
        self.find_soon(fingerprint)
            .or_else(|| self.find_elsewhere(fingerprint))
    }

    /// Returns the slot of this key, if it is one of its own four, as nearly always.
    #[inline]
    pub(super) fn find_soon(&self, fingerprint: u64) -> Option<&Slot<C>> {
        self.find_in_line(own(fingerprint), fingerprint)
            .or_else(|| self.find_in_line(second(fingerprint), fingerprint))
    }

    /// Returns the slot of this key, if it is one of the four that begin here.
    #[inline]
    fn find_in_line(&self, first: usize, fingerprint: u64) -> Option<&Slot<C>> {
        // All four are compared before the branch: which one matches cannot be predicted.
        let line = &self.slots[first..first + OWN];
        let is_at = |place: usize| usize::from(line[place].is_of(fingerprint));
        let place = is_at(1) + 2 * is_at(2) + 3 * is_at(3);
        line.get(place).filter(|slot| slot.is_of(fingerprint))
    }

    #[inline(never)]
    fn find_elsewhere(&self, fingerprint: u64) -> Option<&Slot<C>> {
        let tag = tag(fingerprint) * LOWEST_BITS;
        let mut slots = self.tags.iter().enumerate().flat_map(|(word, tags)| {
            let differing = tags.load(Ordering::Relaxed) ^ tag;
            // Has the highest bit of each byte that is zero, and of a few others, whose slots are compared in
            // vain.
            let alike = differing.wrapping_sub(LOWEST_BITS) & !differing & HIGHEST_BITS;
            bytes(alike).map(move |byte| &self.slots[word * TAGS_IN_A_WORD + byte])
        });
        slots
            .find(|slot| slot.is_of(fingerprint))
            .or_else(|| self.behind().find(|slot| slot.is_of(fingerprint)))
    }

    /// Returns the key's own slots in which there are other keys.
    pub(super) fn own(&self, fingerprint: u64) -> impl Iterator<Item = SlotRef<'_, C>> {
        let first = own(fingerprint);
        (first..first + OWN)
            .map(|slot| self.place(slot))
            .filter(SlotRef::is_taken)
    }

    /// Returns an empty slot on this page, if there is one, and a key's own if possible.
    pub(super) fn empty(&self, fingerprint: u64) -> Option<SlotRef<'_, C>> {
        let in_line = |first: usize| {
            let mut places = (first..first + OWN).map(|slot| self.place(slot));
            places.find(|place| !place.is_taken())
        };
        let soon = in_line(own(fingerprint)).or_else(|| in_line(second(fingerprint)));
        soon.or_else(|| {
            self.tags.iter().enumerate().find_map(|(word, tags)| {
                let empty = !tags.load(Ordering::Relaxed) & HIGHEST_BITS;
                let slot = word * TAGS_IN_A_WORD + bytes(empty).next()?;
                Some(self.place(slot))
            })
        })
    }

    /// Returns every key, including those in the overflow slots.
    pub(super) fn keys(&self) -> Keys<'_, C> {
        Keys {
            page: self,
            next_word: 0,
            taken: 0,
            link: &self.behind,
            next_behind: 0,
        }
    }

    #[inline(never)]
    pub(super) fn fingerprints(&self) -> Vec<u64> {
        self.keys().map(|place| place.fingerprint()).collect()
    }

    fn behind(&self) -> impl Iterator<Item = &Slot<C>> {
        let behind = self.behind.get().map(Box::as_ref);
        let each = std::iter::successors(behind, |behind| behind.next.get().map(Box::as_ref));
        each.flat_map(|behind| &behind.slots)
    }

    fn place(&self, slot: usize) -> SlotRef<'_, C> {
        SlotRef {
            slot: &self.slots[slot],
            tag: Some((&self.tags[slot / TAGS_IN_A_WORD], slot % TAGS_IN_A_WORD * 8)),
        }
    }
}

/// The keys of a page, and then those in its overflow slots. A named type, so that it is compiled once and
/// not for each use.
pub(super) struct Keys<'a, C> {
    page: &'a Page<C>,
    /// The word of tags that is read next.
    next_word: usize,
    /// The tags of the previous word whose keys are not returned yet.
    taken: u64,
    link: &'a OnceLock<Box<OverflowSlots<C>>>,
    next_behind: usize,
}

impl<'a, C> Iterator for Keys<'a, C> {
    type Item = SlotRef<'a, C>;

    #[inline(never)]
    fn next(&mut self) -> Option<SlotRef<'a, C>> {
        while self.taken == 0 {
            let Some(tags) = self.page.tags.get(self.next_word) else {
                return self.behind();
            };
            self.taken = tags.load(Ordering::Relaxed) & HIGHEST_BITS;
            self.next_word += 1;
        }
        let byte = self.taken.trailing_zeros() as usize / TAGS_IN_A_WORD;
        self.taken &= self.taken - 1;
        let word = self.next_word - 1;
        Some(self.page.place(word * TAGS_IN_A_WORD + byte))
    }
}

impl<'a, C> Keys<'a, C> {
    fn behind(&mut self) -> Option<SlotRef<'a, C>> {
        loop {
            let behind = self.link.get()?;
            let Some(slot) = behind.slots.get(self.next_behind) else {
                (self.link, self.next_behind) = (&behind.next, 0);
                continue;
            };
            self.next_behind += 1;
            let place = SlotRef::behind(slot);
            if place.is_taken() {
                return Some(place);
            }
        }
    }
}

/// Returns the places of the bytes whose highest bit is set.
fn bytes(mut highest_bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (highest_bits != 0).then(|| {
            let byte = highest_bits.trailing_zeros() as usize / TAGS_IN_A_WORD;
            highest_bits &= highest_bits - 1;
            byte
        })
    })
}

/// A slot, with its tag unless it is an overflow slot.
#[derive(Debug)]
pub(super) struct SlotRef<'a, C> {
    slot: &'a Slot<C>,
    /// The word, and the position of the tag's lowest bit in it.
    tag: Option<(&'a AtomicU64, usize)>,
}

impl<'a, C> SlotRef<'a, C> {
    fn behind(slot: &'a Slot<C>) -> Self {
        Self { slot, tag: None }
    }

    pub(super) fn slot(&self) -> &'a Slot<C> {
        self.slot
    }

    pub(super) fn is_behind(&self) -> bool {
        self.tag.is_none()
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.slot.fingerprint.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, fingerprint: u64) {
        self.slot.fingerprint.store(fingerprint, Ordering::Relaxed);
        self.set_tag(tag(fingerprint));
    }

    pub(super) fn leave(&self) {
        self.slot.fingerprint.store(EMPTY, Ordering::Relaxed);
        self.set_tag(EMPTY);
    }

    fn is_taken(&self) -> bool {
        self.fingerprint() != EMPTY
    }

    fn set_tag(&self, tag: u64) {
        if let Some((word, bits)) = self.tag {
            let others = word.load(Ordering::Relaxed) & !(0xff << bits);
            word.store(others | tag << bits, Ordering::Relaxed);
        }
    }
}

impl<C> Clone for SlotRef<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for SlotRef<'_, C> {}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;
    use crate::store::memory::cell::{Long, Word, Words};

    /// Returns a key whose own slots begin at `own`. `tag` is the same for all keys unless a test sets it.
    fn key(own: u64, tag: u64, number: u64) -> u64 {
        tag << 33 | own << 24 | number
    }

    fn put(page: &Page<Word>, fingerprint: u64) {
        page.empty(fingerprint).unwrap().take(fingerprint);
    }

    fn slot_of(page: &Page<Word>, fingerprint: u64) -> Option<usize> {
        let is_it = |slot: &Slot<Word>| slot.fingerprint.load(Ordering::Relaxed) == fingerprint;
        page.slots.iter().position(is_it)
    }

    #[test]
    fn a_page_takes_what_the_documentation_of_the_store_counts_with() {
        assert_eq!(size_of::<Page<Word>>(), 1152);
        assert_eq!(size_of::<Page<Words>>(), 128 + SLOTS * 32);
        assert!(size_of::<Page<Long>>() <= 128 + SLOTS * 56);
        assert_eq!(align_of::<Page<Word>>(), 64);
    }

    #[test]
    fn the_own_slots_of_a_key_share_a_line_of_the_cache() {
        let page = Page::<Word>::new();
        for first in (0..SLOTS).step_by(OWN) {
            let line = |slot: usize| std::ptr::from_ref(&page.slots[slot]).addr() / 64;
            assert_eq!(line(first), line(first + OWN - 1));
        }
    }

    #[test]
    fn a_key_stands_in_one_of_its_own_slots_if_it_can() {
        let page = Page::new();
        let keys = (1..=4).map(|number| key(20, 0x11, number));
        for key in keys.clone() {
            put(&page, key);
            let slot = slot_of(&page, key).unwrap();
            assert!((20..24).contains(&slot), "{slot}");
        }
        for key in keys {
            let found = page.find_soon(key).unwrap();
            assert_eq!(found.fingerprint.load(Ordering::Relaxed), key);
        }
        assert!(page.find(key(20, 0x11, 5)).is_none());
        assert!(page.find(key(20, 0x12, 1)).is_none());
    }

    #[test]
    fn a_key_whose_own_slots_are_taken_stands_on_its_second_line_if_it_can() {
        for apart in 0..16 {
            let page = Page::new();
            for number in 1..=OWN as u64 {
                put(&page, key(20, 0x11, number));
            }
            let later = (5..=8).map(|number| apart << 40 | key(20, 0x11, number));
            let first = second(apart << 40 | key(20, 0x11, 5));
            assert_ne!(first, 20);
            for key in later.clone() {
                put(&page, key);
                let slot = slot_of(&page, key).unwrap();
                assert!((first..first + OWN).contains(&slot), "{slot}");
            }
            for key in later {
                let found = page.find_soon(key).unwrap();
                assert_eq!(found.fingerprint.load(Ordering::Relaxed), key);
            }
            let ninth = apart << 40 | key(20, 0x11, 9);
            put(&page, ninth);
            assert!(page.find_soon(ninth).is_none());
            assert!(page.find(ninth).is_some());
        }
    }

    #[test]
    fn every_key_of_a_full_page_is_found_though_all_have_the_same_own_slots_and_tag() {
        let page = Page::new();
        for number in 1..=SLOTS as u64 {
            put(&page, key(20, 0x11, number));
        }
        assert!(page.empty(key(20, 0x11, 99)).is_none());
        for number in 1..=SLOTS as u64 {
            let key = key(20, 0x11, number);
            let found = page.find(key).unwrap();
            assert_eq!(found.fingerprint.load(Ordering::Relaxed), key);
        }
        assert!(page.find(key(20, 0x11, 99)).is_none());
        assert_eq!(page.keys().count(), SLOTS);
    }

    #[test]
    fn keys_of_any_tag_are_found_where_they_are_not_looked_for_first() {
        for tag in 0..0x80 {
            let page = Page::new();
            for number in 1..=2 * OWN as u64 {
                put(&page, key(8, 0x55, number));
            }
            let elsewhere = key(8, tag, 77);
            put(&page, elsewhere);
            assert!(page.find_soon(elsewhere).is_none(), "{tag}");
            assert!(page.find(elsewhere).is_some(), "{tag}");
            assert!(page.find(key(8, tag, 78)).is_none());
        }
    }

    #[test]
    fn keys_behind_a_page_are_found_and_told() {
        let page = Page::new();
        for number in 1..=SLOTS as u64 {
            put(&page, key(0, 0, number));
        }
        let behind: Vec<u64> = (1..=10).map(|number| key(0, 0, 1_000 + number)).collect();
        let made = behind.iter().map(|key| {
            let (place, is_made) = page.empty_behind();
            place.take(*key);
            usize::from(is_made)
        });
        // Ten keys, eight for each allocation.
        assert_eq!(made.sum::<usize>(), 2);
        assert!(behind.iter().all(|key| page.find(*key).is_some()));
        assert_eq!(page.keys().count(), SLOTS + 10);
        assert_eq!(page.keys().filter(SlotRef::is_behind).count(), 10);
    }

    #[test]
    fn a_slot_that_is_left_is_empty_and_its_neighbours_stay() {
        let page = Page::new();
        for number in 1..=SLOTS as u64 {
            put(&page, key(number, number, number));
        }
        let left = key(30, 30, 30);
        let place = page.keys().find(|place| place.fingerprint() == left);
        place.unwrap().leave();
        assert!(page.find(left).is_none());
        assert_eq!(page.keys().count(), SLOTS - 1);
        for number in (1..=SLOTS as u64).filter(|number| *number != 30) {
            assert!(page.find(key(number, number, number)).is_some());
        }
        assert!(page.empty(key(63, 1, 5)).is_some());
        assert_eq!(page.own(left).count(), OWN - 1);
    }
}
