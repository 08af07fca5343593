//! A queue that several nodes share, by the items of one place. They move a request up among those that they hold themselves.

use tokio::runtime::Builder;

use super::*;

/// Timers that go on with the clock of a scene. They have to be entered.
fn timers() -> Rc<Runtime> {
    let paused = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    Rc::new(paused.unwrap())
}

/// So many nodes before one place.
fn scene(nodes: usize, policy: &Policy, timers: &Rc<Runtime>) -> Scene {
    let clock = ManualClock::new();
    let map = Map::new(&clock);
    let node = |_| {
        let builder = Limiter::builder().policy(policy.clone());
        let builder = builder.plans_by_name(plans());
        let store = SharedStore::new(map.clone());
        builder.store(store).build().unwrap()
    };
    let nodes = (0..nodes).map(node).collect();
    Scene::at(clock, nodes, Some(Rc::clone(timers)))
}

fn play_at(
    nodes: usize,
    policy: &Policy,
    askers: &[Asker],
    span: (f64, f64),
) -> (Vec<Had>, Vec<f64>) {
    let timers = timers();
    let _entered = timers.enter();
    play(&mut scene(nodes, policy, &timers), askers, span)
}

/// A tenant that asks so often in a second, at all nodes in turn.
fn everywhere(per_second: f64) -> Asker {
    Asker {
        node: None,
        ..asker(per_second)
    }
}

/// Asserts that requests went on at the rate of the queue, and returns it.
fn rate(had: &[Had], went_on: &mut [f64]) -> f64 {
    let all: f64 = rates(had).iter().sum();
    assert!(all <= 100.5, "{all}: {had:?}");
    // The steps of the clock and of the timers may let one be two milliseconds late.
    went_on.sort_by(f64::total_cmp);
    for pair in went_on.windows(2) {
        assert!(pair[1] - pair[0] >= 0.01 - 0.002_1, "{pair:?}");
    }
    all
}

#[test]
fn who_asks_a_hundred_times_as_often_has_no_more_at_any_node() {
    let mut at_all = vec![everywhere(15.0); 10];
    at_all[0].per_second = 1_500.0;
    let mut at_own = at_all.clone();
    for (place, asker) in at_own.iter_mut().enumerate() {
        asker.node = Some(place % 3);
    }
    let mut late = at_all.clone();
    late[0].from = 2.0;
    for (places, askers) in [(4, at_all), (19, at_own), (99, late)] {
        let (had, mut went_on) = play_at(3, &queue(places), &askers, (4.0, 16.0));
        let of = format!("{places} places: {had:?}");
        let all = rate(&had, &mut went_on);
        assert!(all >= 98.0, "{all}: {of}");
        assert!(jain(&had) >= 0.98, "{of}");
        let least = 0.95 / 10.0 * all - 1.0 / 12.0;
        assert!(had.iter().all(|had| had.rate >= least), "{of}");
    }
}

#[test]
fn one_alone_has_all_of_it_at_any_number_of_nodes() {
    for askers in [&[asker(200.0)][..], &[everywhere(200.0)]] {
        let (had, mut went_on) = play_at(3, &queue(19), askers, (1.0, 6.0));
        let all = rate(&had, &mut went_on);
        assert!(all >= 98.0, "{all}");
        assert!(had[0].longest <= 0.202, "{had:?}");
    }
}

#[test]
fn plans_have_weights_at_all_nodes_together() {
    let policy = queue(19).fair(Fair::new().weight("pro", 4));
    let pro = Asker {
        plan: "pro",
        node: Some(1),
        ..asker(200.0)
    };
    let askers = [everywhere(500.0), pro];
    let (had, mut went_on) = play_at(3, &policy, &askers, (2.0, 12.0));
    rate(&had, &mut went_on);
    assert!((19.0..21.0).contains(&had[0].rate), "{had:?}");
    assert!((79.0..81.0).contains(&had[1].rate), "{had:?}");
}

/// Clients that go away before their turn leave it to the next ones of their node, and the others have their shares.
#[test]
fn who_goes_away_loses_no_turn_of_the_others() {
    let impatient = Asker {
        patience: 0.05,
        ..everywhere(100.0)
    };
    let askers = [everywhere(500.0), impatient, everywhere(60.0)];
    let (had, mut went_on) = play_at(3, &queue(30), &askers, (2.0, 12.0));
    let all = rate(&had, &mut went_on);
    assert!(all >= 98.0, "{all}: {had:?}");
    assert!(had[2].rate >= 0.95 / 3.0 * 100.0, "{had:?}");
}

/// A newcomer at the node of a hog goes on at one of its next turns. At another node it waits behind the turns that are given, which is no longer
/// than the queue.
#[test]
fn a_newcomer_waits_for_turns_that_are_given_and_no_longer() {
    let timers = timers();
    let _entered = timers.enter();
    let mut scene = scene(2, &queue(99), &timers);
    let turn = Duration::from_millis(10);
    for number in 0..90 {
        scene.send(job(0, number));
    }
    scene.send(job(1, 200));
    let elsewhere = Job {
        node: 1,
        ..job(2, 300)
    };
    scene.send(elsewhere);
    scene.step(2 * turn + 2 * MILLISECOND);
    assert_eq!(scene.went_on(), [0, 1, 200]);
    scene.step(88 * turn);
    let went_on = scene.went_on();
    assert_eq!(went_on.len(), 88);
    assert!(!went_on.contains(&300), "{went_on:?}");
    scene.step(turn);
    assert_eq!(scene.went_on(), [300]);
}

/// The turns that one node cannot give back, since that of another one is behind them, are those of its next requests.
#[test]
fn a_node_keeps_turns_before_those_of_others() {
    let timers = timers();
    let _entered = timers.enter();
    let mut scene = scene(2, &queue(9), &timers);
    let hog: Vec<_> = (0..9).map(|number| scene.send(job(0, number))).collect();
    let behind = Job {
        node: 1,
        ..job(1, 20)
    };
    scene.send(behind);
    for task in &hog[3..] {
        scene.drop_one(*task);
    }
    let turn = Duration::from_millis(10);
    scene.step(turn);
    // One place is free, and six turns before it are.
    scene.send(job(2, 30));
    // Its own turn was the last, and is given back: so another one has that place.
    scene.send(Job {
        node: 1,
        ..job(3, 40)
    });
    scene.step(10 * turn + 2 * MILLISECOND);
    assert_eq!(scene.went_on(), [0, 1, 2, 30, 20, 40]);
}

/// What two tenants have given up goes back with the turn of a third one. They had used turns then that they did not have.
#[test]
fn turns_go_back_as_those_of_the_tenants_that_gave_them_up() {
    let timers = timers();
    let _entered = timers.enter();
    let mut scene = scene(2, &queue(9), &timers);
    // As much is kept for these as the queue has, so that who has a debt is refused.
    for of in 10..22 {
        scene.send(job(of, 0));
        scene.step(Duration::from_millis(20));
    }
    let elsewhere = |of| Job {
        node: 1,
        ..job(of, 0)
    };
    scene.send(elsewhere(10));
    let large = Job {
        cost: 4,
        ..job(0, 0)
    };
    let gone = [large, job(1, 0), elsewhere(2)].map(|job| scene.send(job));
    for task in gone {
        scene.drop_one(task);
    }
    scene.ended.lock().unwrap().clear();
    // Its own turn was behind those that are given up, of which it has the first.
    for (of, number) in [(3, 1), (0, 2), (1, 3)] {
        scene.send(job(of, number));
    }
    assert_eq!(scene.ended.lock().unwrap()[..], [], "refused");
    scene.step(Duration::from_millis(42));
    assert_eq!(scene.went_on(), [1, 2, 3]);
}
