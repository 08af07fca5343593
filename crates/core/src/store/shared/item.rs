//! The item of a key: its records, and their bytes.

use smallvec::SmallVec;

use crate::clock::Micros;

/// The state of one key: a record for each policy that it has a state under, one for each policy that blocks
/// it, and one for each policy under which it has an override. A node keeps a record that it does not know as
/// it is, until the record ends.
///
/// As bytes: the version of the format, 1; the moment of the last write; then for each record its tag, its
/// end, the number of its words, and its words. Numbers are big-endian and have 64 bits, except for the
/// version, which is a byte, and the number of words, which has 32 bits. The version is also in the item's
/// name, so that a later version does not read this item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    /// The moment of the last write.
    pub(super) latest: Micros,
    records: Vec<Record>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    tag: u64,
    until: Micros,
    words: Words,
}

type Words = SmallVec<[u64; 4]>;

const VERSION: u8 = 1;

/// The bytes are not an item of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl Item {
    /// Reads an item. No bytes are the item of a new key.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        let Some((version, mut rest)) = bytes.split_first() else {
            return Ok(Self::default());
        };
        if *version != VERSION {
            return Err(Damaged);
        }
        let latest = Micros::new(number(&mut rest)?);
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (tag, until) = (number(&mut rest)?, Micros::new(number(&mut rest)?));
            let count = u32::from_be_bytes(take(&mut rest)?);
            // A count that exceeds the words that follow is damage, and nothing is allocated for it.
            if rest.len() / size_of::<u64>() < usize::try_from(count).map_err(|_| Damaged)? {
                return Err(Damaged);
            }
            let words = (0..count).map(|_| number(&mut rest));
            records.push(Record {
                tag,
                until,
                words: words.collect::<Result<_, _>>()?,
            });
        }
        Ok(Self { latest, records })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.latest.get().to_be_bytes());
        for record in &self.records {
            bytes.extend(record.tag.to_be_bytes());
            bytes.extend(record.until.get().to_be_bytes());
            let count = u32::try_from(record.words.len()).unwrap_or(u32::MAX);
            bytes.extend(count.to_be_bytes());
            bytes.extend(record.words.iter().flat_map(|word| word.to_be_bytes()));
        }
        bytes
    }

    /// Returns the words of the record with this tag, or none if there is no record.
    pub(super) fn words(&self, tag: u64) -> &[u64] {
        let record = self.records.iter().find(|record| record.tag == tag);
        record.map_or(&[], |record| &record.words)
    }

    /// Returns the end of the record with this tag.
    pub(super) fn until_of(&self, tag: u64) -> Micros {
        let record = self.records.iter().find(|record| record.tag == tag);
        record.map_or(Micros::ZERO, |record| record.until)
    }

    /// Writes these words under this tag, with this end. No words remove the record.
    pub(super) fn put(&mut self, tag: u64, words: &[u64], until: Micros) {
        self.records.retain(|record| record.tag != tag);
        if !words.is_empty() {
            let words = Words::from_slice(words);
            self.records.push(Record { tag, until, words });
        }
    }

    /// Removes the records that have ended, of any writer.
    pub(super) fn forget(&mut self, now: Micros) {
        self.records.retain(|record| record.until > now);
    }

    /// Returns the end of the last record.
    pub(super) fn until(&self) -> Micros {
        let until = self.records.iter().map(|record| record.until);
        until.max().unwrap_or(Micros::ZERO)
    }
}

fn number(bytes: &mut &[u8]) -> Result<u64, Damaged> {
    Ok(u64::from_be_bytes(take(bytes)?))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Damaged> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(Damaged)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> Item {
        let mut item = Item {
            latest: Micros::new(5),
            ..Item::default()
        };
        item.put(1, &[7], Micros::new(10));
        item.put(2, &[8, 9, u64::MAX, 0], Micros::new(20));
        item
    }

    #[test]
    fn the_bytes_stay_the_same_from_version_to_version() {
        let mut item = Item {
            latest: Micros::new(0x0102),
            ..Item::default()
        };
        item.put(3, &[4], Micros::new(5));
        let mut bytes = vec![1];
        bytes.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 5]);
        bytes.extend([0, 0, 0, 1]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(item.write(), bytes);
        assert_eq!(Item::read(&bytes), Ok(item));
    }

    #[test]
    fn written_values_are_read_back() {
        assert_eq!(Item::read(&item().write()), Ok(item()));
        assert_eq!(Item::read(&[]), Ok(Item::default()));
        assert_eq!(item().words(2), [8, 9, u64::MAX, 0]);
        assert!(item().words(3).is_empty());
    }

    #[test]
    fn a_truncated_item_or_another_version_is_damaged() {
        let whole = item().write();
        let ends = [9, 9 + 20 + 8, whole.len()];
        for len in 1..=whole.len() {
            let read = Item::read(&whole[..len]);
            assert_eq!(read.is_ok(), ends.contains(&len), "{len} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        let mut newer = whole.clone();
        newer[0] = 2;
        let mut boastful = whole[..9 + 20].to_vec();
        boastful[9 + 16..].fill(u8::MAX);
        for bytes in [longer, newer, boastful, b"hello".to_vec()] {
            assert_eq!(Item::read(&bytes), Err(Damaged), "{bytes:?}");
        }
    }

    #[test]
    fn an_item_without_meaning_is_forgotten() {
        let mut item = item();
        assert_eq!(item.until(), Micros::new(20));
        item.forget(Micros::new(10));
        assert_eq!((item.words(1).len(), item.words(2).len()), (0, 4));
        item.put(2, &[], Micros::new(30));
        assert_eq!((item.until(), item.write().len()), (Micros::ZERO, 9));
    }
}
