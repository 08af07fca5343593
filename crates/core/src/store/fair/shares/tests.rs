//! The words of tenants, and what they may take after an amendment.

use super::tenant::WORDS;
use super::words::HEAD;
use super::*;
use crate::algorithm::TokenBucket;
use crate::decision::Outcomes;
use crate::key::IntoKey;
use crate::policy::{Fair, MOST_TENANTS};
use crate::store::fair::times::LARGEST;
use crate::store::{Amendment, Charge, Taken};

fn scale() -> Scale {
    let bucket = TokenBucket::per_second(10).into();
    Scale::of(&bucket, &Fair::new()).unwrap()
}

fn shares() -> Shares {
    let (mut shares, scale) = (Shares::default(), scale());
    for (name, at) in [(7, 1_000_000), (8, 1_500_000)] {
        let (place, _) = shares.ask((name, 4), Micros::new(at), &scale);
        shares.charge(place, 2, &scale);
    }
    let mut share = shares.look(7, Micros::new(1_500_000), &scale);
    shares.refuse((0, &mut share), (1, Micros::ZERO), &scale);
    shares
}

/// A turn that was given under another limit is for as many units.
#[test]
fn after_the_limit_has_changed_a_look_tells_what_a_request_is_told() {
    let twice = TokenBucket::per_second(20).into();
    let scale = Scale::of(&twice, &Fair::new()).unwrap();
    let (mut shares, now) = (shares(), Micros::new(2_000_000));
    let looked = shares.look(8, now, &scale);
    let (_, asked) = shares.ask((8, 4), now, &scale);
    assert_eq!((looked.kept, asked.kept), (1, 1));
}

/// It is so at the moment of the amendment, and not at that of the last request.
#[test]
fn what_a_tenant_gets_back_is_its_claim_again_up_to_its_share_of_the_burst() {
    let scale = scale();
    let amended = |amendment, units, at| {
        let (mut shares, now) = (shares(), Micros::new(at));
        shares.amend((8, 4), (units, now), amendment, &scale);
        shares.look(8, now, &scale)
    };
    let taken_until = |until| {
        let bucket = TokenBucket::per_second(10).into();
        let charge = Charge::new(0, 8_u64.into_key(), 2);
        let outcomes = Outcomes::new(Micros::new(until));
        Amendment::TakeBack(Taken::of(&charge, &bucket, &outcomes))
    };
    // It has a debt until 1.9 s.
    let owing = shares().look(8, Micros::new(1_600_000), &scale);
    assert!(owing.has_debt, "{owing:?}");
    let later = 1_950_000;
    for (amendment, then) in [
        (Amendment::Refund, [2, 5, 1]),
        (taken_until(later + 1), [2, 5, 1]),
        // What it owes is forgotten, and nothing else.
        (Amendment::Reset, [0, 0, 1]),
    ] {
        let share = amended(amendment, 2, 1_600_000);
        assert_eq!((share.has_debt, share.claim), (false, 0), "{amendment:?}");
        // Its share of the burst is five units. Away for more than a second, it has no claim, and its first request passes.
        let claims = [(2, later), (20, later), (20, 2_600_000)];
        let claims = claims.map(|(units, at)| amended(amendment, units, at).claim);
        let taken = matches!(amendment, Amendment::TakeBack(_));
        let known = if taken { 2 } else { 3 };
        assert_eq!(claims[..known], then[..known], "{amendment:?}");
    }
    // The limit does not take it back any more.
    assert_eq!(amended(taken_until(1_600_000), 2, 1_600_000), owing);
}

/// That of a request below the share of the burst as long as the tenant counts, and that of a larger one until a quarter of the limit is granted.
#[test]
fn a_turn_lasts_a_while_after_its_moment() {
    let (scale, now) = (scale(), Micros::new(1_500_000));
    for (cost, lasts) in [(3, 1_000_000), (8, 250_000)] {
        let mut shares = shares();
        let (place, mut share) = shares.ask((8, 4), now, &scale);
        shares.refuse((place, &mut share), (cost, scale.fill), &scale);
        let (turn, after) = shares.turn(place);
        assert!(turn == cost && after > Micros::ZERO);
        let at = |late| now.saturating_add(after).saturating_add(Micros::new(late));
        let turn_at = |late| shares.look(8, at(late), &scale).turn_of_now();
        assert_eq!((turn_at(lasts), turn_at(lasts + 1)), (cost, 0));
    }
}

/// All that the limit has is kept for turns while one is large, and no longer.
#[test]
fn a_turn_is_as_large_as_it_was_when_it_was_given() {
    for limit in [4, 10, 100] {
        let (mut shares, old, now) = (shares(), scale(), Micros::new(1_500_000));
        let refuse = |shares: &mut Shares, name, cost, now, scale: &Scale| {
            let (place, mut share) = shares.ask((name, 4), now, scale);
            shares.refuse((place, &mut share), (cost, scale.fill), scale);
        };
        refuse(&mut shares, 8, 3, now, &old);
        assert_eq!(shares.large, 1);
        let bucket = TokenBucket::per_second(limit).into();
        let new = Scale::of(&bucket, &Fair::new()).unwrap();
        let place = shares.place_of(8).unwrap();
        let then = now.saturating_add(shares.turn(place).1);
        for cost in [1, 2] {
            refuse(&mut shares, 7, 1, then, &new);
            assert_eq!(Shares::read(&shares.words()).unwrap().large, 1);
            let (place, _) = shares.ask((8, 4), then, &new);
            shares.charge(place, cost, &new);
        }
        // The other one still has a turn.
        assert_eq!((shares.large, shares.turns.are_none()), (0, false));
    }
}

/// Nodes of different versions share items, and a snapshot outlives a release.
#[test]
fn the_words_stay_the_same_from_version_to_version() {
    let bits = f64::to_bits;
    let words = [
        &[
            bits(1_125_000.0),
            1_500_000,
            bits(300_000.0),
            bits(0.0),
            0,
            bits(0.0),
            2,
        ][..],
        &[7, 0x0401_0100_0000_0001, 1_500_000, 1_500_000],
        &[bits(1_050_000.0), bits(1_050_000.0), bits(0.0)],
        &[8, 0x0401_0000_0000_0000, 0, 1_500_000],
        &[bits(1_175_000.0), bits(1_125_000.0), bits(0.0)],
        &[bits(100_000.0), bits(0.0), bits(25_000.0), bits(100_000.0)],
    ];
    let shares = shares();
    assert_eq!(shares.words(), words.concat());
    let read = Shares::read(&shares.words()).unwrap();
    assert_eq!(read.words(), shares.words());
    assert_eq!((read.place_of(7), read.place_of(8)), (Some(0), Some(1)));
    assert!(Shares::default().words().is_empty());
    assert!(Shares::read(&[]).unwrap().tenants.is_empty());
}

/// What an item holds may be anything.
#[test]
fn words_that_no_rule_writes_are_not_read() {
    let words = shares().words();
    let (one, turns) = (HEAD + WORDS, HEAD + 2 * WORDS);
    for len in 1..words.len() {
        assert!(Shares::read(&words[..len]).is_none(), "{len}");
    }
    let not_a_number = f64::NAN.to_bits();
    for (at, word) in [
        (0, not_a_number),
        (2, f64::INFINITY.to_bits()),
        (5, f64::MAX.to_bits()),
        (HEAD + 1, 0x0001_0000_0000_0000),
        (HEAD + 1, 0x0403_0000_0000_0000),
        (HEAD + 1, 0x0401_0200_0000_0001),
        (HEAD + 1, 0x0401_0002_0000_0001),
        (HEAD + 4, not_a_number),
        (HEAD + WORDS, 7),
        // The tenants are fewer, and nobody has a turn.
        (HEAD - 1, 1),
        (HEAD - 1, u64::MAX),
        (HEAD + 1, 0x0401_0000_0000_0000),
        // A turn is large, and there is none.
        (HEAD + WORDS + 1, 0x0401_0001_0000_0000),
        // The first slot is over, has not begun, or is too narrow; less is kept than nothing.
        (turns, 0),
        (turns, 1e-300_f64.to_bits()),
        (turns + 1, 25_001_f64.to_bits()),
        (turns + 1, (-1.0_f64).to_bits()),
        (turns + 2, 0.5_f64.to_bits()),
        (turns + 3, (-1.0_f64).to_bits()),
    ] {
        let mut words = words.clone();
        words[at] = word;
        assert!(Shares::read(&words).is_none(), "{word} at {at}");
    }
    let mut many = words[..HEAD].to_vec();
    for name in 0..u64::from(MOST_TENANTS) + 2 {
        many.push(name);
        many.extend(&words[one + 1..turns]);
    }
    many[HEAD - 1] = u64::from(MOST_TENANTS) + 2;
    assert!(Shares::read(&many).is_none());
    many[HEAD - 1] -= 1;
    assert!(Shares::read(&many[..many.len() - WORDS]).is_some());
    // More is booked than slots there are, or less than nothing, or more than a slot is long.
    let (less, more) = ((-1.0_f64).to_bits(), 50_000_f64.to_bits());
    for booked in [&[0; 65][..], &[less], &[more], &[not_a_number]] {
        assert!(Shares::read(&[&words[..], booked].concat()).is_none());
    }
}

#[test]
fn the_largest_numbers_that_are_read_break_nothing() {
    let (extremes, scale) = ([LARGEST, -LARGEST, 0.0].map(f64::to_bits), scale());
    for [virtual_time, tag, since] in extremes
        .into_iter()
        .flat_map(|one| extremes.map(|two| extremes.map(|three| [one, two, three])))
        .flatten()
    {
        for traits in [
            0x6400_0000_0000_0000,
            0x6401_0100_0000_0000,
            0x6402_0000_0000_0000,
            0x6401_0101_FFFF_FFFF,
        ] {
            let head = [virtual_time, u64::MAX, tag, since, u64::MAX, tag, 2];
            let each = [1, 2].map(|name| [name, traits, u64::MAX, u64::MAX, tag, since, tag]);
            let unit = if virtual_time == 0 { 1e-10 } else { LARGEST };
            let turns = [unit, 1.0, 1.0, LARGEST, 1.5, 1.0].map(f64::to_bits);
            let turns = if traits & 1 == 0 { &[][..] } else { &turns };
            let words = [&head[..], each.as_flattened(), turns].concat();
            for now in [0, 1 << 53, u64::MAX].map(Micros::new) {
                let mut shares = Shares::read(&words).unwrap();
                let _ = (shares.look(1, now, &scale), shares.lapse_at(&scale));
                shares.use_up((1, 100), u32::MAX, now, &scale);
                shares.give_back(2, u32::MAX, now, &scale);
                shares.forgive(1, now, &scale);
                let (place, mut share) = shares.ask((3, 1), now, &scale);
                let _ = share.wait(1, Micros::ZERO);
                shares.charge(place, 1, &scale);
                shares.refuse((place, &mut share), (1, Micros::ZERO), &scale);
                shares.pass_by(place);
            }
        }
    }
}
