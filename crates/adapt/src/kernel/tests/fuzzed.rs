//! Files of the kernel with any text in them.

use std::time::Duration;

use proptest::prelude::*;

use super::Machine;
use crate::Signal;
use crate::kernel::{Cpu, Memory, Pressure, Resource};

const PATHS: [&str; 12] = [
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/stat",
    "/proc/meminfo",
    "/proc/pressure/cpu",
    "/c/cpu.stat",
    "/c/cpu.max",
    "/c/cpuset.cpus.effective",
    "/c/memory.max",
    "/c/memory.current",
    "/c/memory.stat",
];

/// Text that could be in such a file, and text that could not.
fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("0::/"),
        Just("1:cpuacct,cpu:/"),
        Just("/.."),
        Just("a/../b"),
        Just("cgroup2"),
        Just("cgroup"),
        Just(" - "),
        Just("30 23 0:26 / /c rw - cgroup2 x rw\n"),
        Just("usage_usec "),
        Just("nr_periods "),
        Just("nr_throttled "),
        Just("some "),
        Just("total="),
        Just("max"),
        Just("-1"),
        Just("cpu "),
        Just("cpu0 "),
        Just("MemTotal: "),
        Just("MemAvailable: "),
        Just("kB"),
        Just("inactive_file "),
        Just("Cpus_allowed_list:"),
        Just("0-3,8"),
        Just("18446744073709551615"),
        Just("100000"),
        Just("0"),
        Just("\n"),
        Just(" "),
        Just("\\040"),
        Just("\\777"),
        Just("é"),
    ];
    let words = proptest::collection::vec(word, 0..12).prop_map(|words| words.concat());
    prop_oneof![4 => words, 1 => ".{0,40}"]
}

proptest! {
    #[test]
    fn no_text_in_any_file_makes_a_signal_panic(
        first in proptest::collection::vec(text(), PATHS.len()),
        second in proptest::collection::vec(text(), PATHS.len()),
        seconds in (any::<u64>(), any::<u64>()),
    ) {
        let machine = Machine::default();
        let mut signals: [Box<dyn Signal>; 3] = [
            Box::new(Cpu::of(machine.clone())),
            Box::new(Memory::of(machine.clone())),
            Box::new(Pressure::of(machine.clone(), Resource::Cpu)),
        ];
        for (texts, moment) in [(first, seconds.0), (second, seconds.1)] {
            for (path, text) in PATHS.into_iter().zip(&texts) {
                machine.write(&[(path, text)]);
            }
            for signal in &mut signals {
                signal.read(Duration::from_micros(moment));
            }
        }
    }
}
