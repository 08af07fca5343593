//! The words of tenants that hold slots, and when they lapse.

use super::holder::WORDS;
use super::words::HEAD;
use super::*;
use crate::policy::MOST_TENANTS;

fn scale() -> SlotScale {
    SlotScale {
        limit: 4,
        active_for: Micros::from_secs(1),
        tenants: 64,
    }
}

/// Tenant 7 holds three slots and asks for two more, and tenant 8 has held one.
fn holders() -> Holders {
    let (mut holders, scale) = (Holders::default(), scale());
    let second = |tenths: u64| Micros::new(100_000 * tenths);
    let (eight, _) = holders.ask((8, 4), second(10), &scale);
    holders.take(eight, 1, &scale);
    holders.give_back(8, 1, second(12), &scale);
    let (seven, _) = holders.ask((7, 1), second(13), &scale);
    holders.take(seven, 3, &scale);
    let asked = holders.ask((7, 1), second(15), &scale);
    holders.refuse(asked, 2, &scale);
    holders
}

/// Nodes of different versions share items.
#[test]
fn the_words_stay_the_same_from_version_to_version() {
    let bits = f64::to_bits;
    let holders = holders();
    let words = [
        &[bits(1_500_000.0), 1_500_000, 0, bits(0.0)][..],
        &[0, 0, 0, 0, bits(0.0)],
        &[8, 0x0403_0000_0000_0000, 1],
        &[
            bits(1_012_500.0),
            1_500_000,
            1_000_000,
            1_000_000,
            0,
            1_000_000,
        ],
        &[7, 0x0101_0100_0000_0000, 3 << 32 | 3],
        &[
            bits(1_450_000.0),
            1_500_000,
            1_500_000,
            1_500_000,
            0,
            1_300_000,
        ],
    ];
    assert_eq!(holders.words(), words.concat());
    let read = Holders::read(&holders.words()).unwrap();
    assert_eq!(read.words(), holders.words());
    assert_eq!(format!("{:?}", read.sums), format!("{:?}", holders.sums));
    assert_eq!((read.held, read.waiting), (3, 1));
    assert!(Holders::default().words().is_empty());
    assert!(Holders::read(&[]).unwrap().tenants.is_empty());
}

#[test]
fn a_claim_is_written_and_read() {
    let (mut holders, scale) = (holders(), scale());
    let asked = holders.ask((8, 4), Micros::new(1_600_000), &scale);
    holders.refuse(asked, 2, &scale);
    let claim = Claim {
        name: 8,
        slots: 2,
        began: Micros::new(1_600_000),
        since: Micros::new(1_600_000),
        idle: 0.0,
    };
    let expected = format!("{:?}", Some(claim));
    assert_eq!(format!("{:?}", holders.claim), expected);
    let read = Holders::read(&holders.words()).unwrap();
    assert_eq!(format!("{:?}", read.claim), expected);
}

/// What an item holds may be anything.
#[test]
fn words_that_no_rule_writes_are_not_read() {
    let words = holders().words();
    let one = HEAD + WORDS;
    for len in 1..words.len() {
        assert_eq!(Holders::read(&words[..len]).is_some(), len == one, "{len}");
    }
    let not_a_number = f64::NAN.to_bits();
    for (at, word) in [
        (0, not_a_number),
        (3, f64::MAX.to_bits()),
        (5, 1 << 32),
        (8, f64::INFINITY.to_bits()),
        (HEAD + 1, 0x0001_0000_0000_0000),
        (HEAD + 1, 0x0404_0000_0000_0000),
        (HEAD + 1, 0x0401_0001_0000_0000),
        (HEAD + 1, 0x0401_0200_0000_0000),
        (HEAD + 3, not_a_number),
        (HEAD + WORDS, 8),
    ] {
        let mut words = words.clone();
        words[at] = word;
        assert!(Holders::read(&words).is_none(), "{word} at {at}");
    }
    let mut many = words[..HEAD].to_vec();
    for name in 0..u64::from(MOST_TENANTS) + 2 {
        many.push(name);
        many.extend(&words[HEAD + 1..one]);
    }
    assert!(Holders::read(&many).is_none());
    assert!(Holders::read(&many[..many.len() - WORDS]).is_some());
}

#[test]
fn the_largest_numbers_that_are_read_break_nothing() {
    let scale = scale();
    let extremes = [1e60, -1e60, 0.0].map(f64::to_bits);
    for [virtual_time, tag] in extremes
        .into_iter()
        .flat_map(|one| extremes.map(|two| [one, two]))
    {
        for traits in [0x6400, 0x6401, 0x6402, 0x6403].map(|traits| traits << 48 | 0x0100 << 32) {
            for moment in [0, u64::MAX] {
                let head = [virtual_time, moment, u64::MAX, tag];
                let claim = [1, u32::MAX.into(), moment, moment, tag];
                let each = [1, 2].map(|name| {
                    let [most, times] = [u64::MAX, moment];
                    [name, traits, most, tag, times, times, times, times, times]
                });
                let words = [&head[..], &claim, each.as_flattened()].concat();
                for now in [0, 1 << 53, u64::MAX].map(Micros::new) {
                    let mut holders = Holders::read(&words).unwrap();
                    let _ = holders.look(1, now, &scale);
                    let _ = holders.lapse_at(now, &scale);
                    holders.end(2, u32::MAX, now, &scale);
                    holders.count_anew([(4, u32::MAX), (5, 9)].into_iter(), now, &scale);
                    let asked = holders.ask((3, 1), now, &scale);
                    holders.take(asked.0, 1, &scale);
                    holders.refuse(asked, 2, &scale);
                    holders.pass_by(asked.0, &scale);
                    holders.give_back(1, 1, now, &scale);
                    let _ = holders.lapse_at(now, &scale);
                }
            }
        }
    }
}

/// Until then, a tenant that was refused or has held slots is another one than a new tenant.
#[test]
fn tenants_that_have_lapsed_are_as_good_as_forgotten() {
    let scale = scale();
    let ended = Micros::new(9_000_000);
    let mut holders = holders();
    let lapses = holders.lapse_at(ended, &scale);
    assert!(lapses > Micros::new(10_000_000), "{lapses:?}");
    holders.end(7, 3, ended, &scale);
    assert!(holders.are_idle(lapses, &scale));
    let (mut anew, now) = (Holders::default(), lapses);
    for name in [8, 7, 9] {
        let [(_, one), (_, other)] =
            [&mut holders, &mut anew].map(|it| it.ask((name, 1), now, &scale));
        assert_eq!(one, other);
    }
}

/// Tenant 7 has held all slots while tenant 8 waited.
#[test]
fn tenants_lapse_when_the_longest_debt_is_paid() {
    let scale = scale();
    let mut holders = Holders::default();
    let tenth = |tenths: u64| Micros::new(100_000 * tenths);
    let (seven, _) = holders.ask((7, 1), tenth(10), &scale);
    holders.take(seven, 4, &scale);
    let asked = holders.ask((8, 4), tenth(11), &scale);
    holders.refuse(asked, 1, &scale);
    let ended = tenth(20);
    let lapses = holders.lapse_at(ended, &scale);
    holders.end(7, 4, ended, &scale);
    assert!(holders.are_idle(lapses, &scale), "{lapses:?}");
    let inactive = ended.saturating_add(scale.active_for);
    let inactive = inactive.saturating_add(Micros::new(1));
    assert!(!holders.are_idle(inactive, &scale));
}

/// Slots may be lost and taken again, or have been taken while they were not divided.
#[test]
fn slots_that_others_hold_are_counted_anew() {
    let (mut holders, scale) = (holders(), scale());
    let now = Micros::new(1_600_000);
    let held = |holders: &Holders| {
        let held = |name| holders.tenants[holders.places[&name]].held;
        [7, 8, 9].map(held)
    };
    assert!(!holders.look(7, now, &scale).passes(1, 1));
    holders.count_anew([(8, 1), (9, 1)].into_iter(), now, &scale);
    assert_eq!((holders.held, held(&holders)), (2, [0, 1, 1]));
    assert!(holders.look(7, now, &scale).passes(1, 1));
    // As many as are counted are not counted again.
    holders.count_anew([(7, 2)].into_iter(), now, &scale);
    assert_eq!((holders.held, held(&holders)), (2, [0, 1, 1]));
}
