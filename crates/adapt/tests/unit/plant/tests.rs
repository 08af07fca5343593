//! The simulated service is right: its queue agrees with the formulas.

use super::{Conditions, Distribution, End, EndKind, Gate, Random, SERVICE, Service, capacity};

/// Admits all requests, and adds up how long they take.
#[derive(Default)]
struct Open {
    arrived: u32,
    served: u32,
    took: u64,
}

impl Gate for Open {
    type Pass = ();

    fn enter(&mut self, _: f64, _: Conditions, _: &mut Random) -> Option<()> {
        self.arrived += 1;
        Some(())
    }

    fn leave(&mut self, end: End, (): ()) {
        if end.how == EndKind::Served {
            self.served += 1;
            self.took += end.took();
        }
    }
}

fn run(distribution: Distribution, servers: u32, demand: f64, seconds: u32) -> Open {
    let (mut service, mut open) = (Service::new(1, servers, distribution), Open::default());
    for _ in 0..seconds {
        service.second(&mut open, Conditions::demand(demand));
    }
    open
}

/// Returns the mean time in an M/M/c queue, in microseconds: the service, and the wait by Erlang's formula C.
fn by_erlang(servers: u32, demand: f64) -> f64 {
    let load = demand * SERVICE / 1e6;
    let (mut term, mut sum) = (1.0, 0.0);
    for busy in 0..servers {
        sum += term;
        term *= load / f64::from(busy + 1);
    }
    let all_busy = term / (1.0 - load / f64::from(servers));
    let waits = all_busy / (sum + all_busy);
    SERVICE + waits * SERVICE / (f64::from(servers) - load)
}

#[test]
fn a_queue_of_the_kind_m_m_c_is_as_slow_as_erlang_says() {
    for (servers, share) in [(1, 0.5), (2, 0.7), (8, 0.7), (8, 0.9)] {
        let demand = share * capacity(servers);
        let open = run(Distribution::Exponential, servers, demand, 3_000);
        let (told, seen) = (
            by_erlang(servers, demand),
            open.took as f64 / f64::from(open.served),
        );
        assert!(
            (seen / told - 1.0).abs() < 0.06,
            "{servers} servers at {share}: {seen} µs, and {told} by the formula"
        );
    }
}

#[test]
fn arrivals_and_times_have_the_mean_that_they_should_have() {
    for distribution in [Distribution::LogNormal, Distribution::Exponential] {
        let mut random = Random::new(7);
        let sum: f64 = (0..200_000).map(|_| random.time(distribution)).sum();
        assert!((sum / 2e5 - 1.0).abs() < 0.01, "{distribution:?}: {sum}");
    }
    let open = run(Distribution::LogNormal, 8, 100.0, 1_000);
    assert!((f64::from(open.arrived) / 1e5 - 1.0).abs() < 0.02);
}

#[test]
fn more_than_the_servers_can_do_is_given_up() {
    let demand = 3.0 * capacity(4);
    let open = run(Distribution::LogNormal, 4, demand, 200);
    let served = f64::from(open.served) / 200.0;
    assert!((served / capacity(4) - 1.0).abs() < 0.05, "{served}");
}
