//! Faults of the nodes and the server.

use super::World;
use crate::lease::simulation::faults::Fault;
use crate::lease::simulation::queue::What;
use tower_ratelimit_core::__internal::Step;

impl<S: Step> World<S> {
    pub(super) fn next_fault(&mut self) {
        let mut every = self.scene.faults.every;
        if self.workload.replaces_nodes() {
            every = 10_000_000 / self.scene.nodes as u64;
        }
        if every > 0 {
            let gap = 1 + self.random.below(2 * every);
            self.after(gap, What::Fault);
        }
    }

    pub(super) fn fault(&mut self) {
        self.next_fault();
        let random = &mut self.random;
        let node = random.place(self.nodes.len());
        let fault = self.scene.faults.draw(random);
        self.report.faults += 1;
        self.note(node, 0, || format!("{fault:?}"));
        match fault {
            Fault::Crash => {
                self.nodes[node].life += 1;
                self.pairs.forget(node);
            }
            Fault::Suspension(length) => self.nodes[node].away = self.now + length,
            Fault::Partition(length) => {
                let cut = self.now + length;
                let some = self.nodes.len().div_ceil(2);
                for place in 0..some {
                    let place = (node + place) % self.nodes.len();
                    self.nodes[place].cut = cut;
                }
            }
            fault => self.of_the_server(fault),
        }
    }

    fn of_the_server(&mut self, fault: Fault) {
        let before = self.server.time(self.now);
        if let Fault::Back(_) = fault {
            let keys: Vec<u64> = self.compared.keys().copied().collect();
            for key in keys {
                // Refills a bucket by interval until then.
                self.check(key, before);
            }
        }
        let excesses = self.server.suffers(fault, self.now);
        let at = self.server.time(self.now);
        if at < before {
            for key in self.compared.values_mut() {
                key.check.step_back(&self.rule, before, at);
            }
        }
        for (key, excess) in excesses {
            self.check(key, at).excess += excess;
        }
    }
}
