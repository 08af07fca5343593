//! Machines and containers as they exist, each as the few files that describe it.

mod fuzzed;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::files::Files;
use super::{Cpu, Memory, Pressure, Resource};
use crate::{Load, Signal};

/// Files in memory, which a test changes between two readings.
#[derive(Clone, Default)]
struct Machine(Arc<Mutex<BTreeMap<String, String>>>);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let machine = Self::default();
        machine.write(files);
        machine
    }

    fn write(&self, files: &[(&str, &str)]) {
        let mut all = self.0.lock().unwrap();
        for (path, text) in files {
            all.insert((*path).to_owned(), (*text).to_owned());
        }
    }

    fn remove(&self, path: &str) {
        self.0.lock().unwrap().remove(path);
    }

    /// Returns the `cpu` load a second after its first reading, when these files have changed.
    fn cpu_after(&self, changed: &[(&str, &str)]) -> Option<Load> {
        let mut cpu = Cpu::of(self.clone());
        assert_eq!(
            cpu.read(Duration::ZERO),
            None,
            "the first reading has nothing to compare"
        );
        self.write(changed);
        cpu.read(SECOND)
    }

    fn memory(&self) -> Option<Load> {
        Memory::of(self.clone()).read(Duration::ZERO)
    }
}

impl Files for Machine {
    fn read(&self, path: &str) -> Option<String> {
        self.0.lock().unwrap().get(path).cloned()
    }
}

const SECOND: Duration = Duration::from_secs(1);
const FOUR_PROCESSORS: &str =
    "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nintr 5\n";
const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
const V2_MOUNT: &str =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

/// Returns a service of systemd, in a slice with a quota of its own.
fn systemd() -> Machine {
    let service = "/sys/fs/cgroup/system.slice/shop.service";
    Machine::new(&[
        ("/proc/self/cgroup", "0::/system.slice/shop.service\n"),
        ("/proc/self/mountinfo", V2_MOUNT),
        ("/proc/stat", FOUR_PROCESSORS),
        ("/proc/meminfo", MEMINFO),
        (
            &format!("{service}/cpu.stat"),
            "usage_usec 1000\nnr_periods 0\nnr_throttled 0\n",
        ),
        (&format!("{service}/cpu.max"), "max 100000\n"),
        (&format!("{service}/memory.max"), "max\n"),
        (&format!("{service}/memory.current"), "500\n"),
        (
            &format!("{service}/memory.stat"),
            "anon 100\ninactive_file 300\n",
        ),
        (
            "/sys/fs/cgroup/system.slice/cpu.stat",
            "usage_usec 5000\nnr_periods 10\nnr_throttled 1\n",
        ),
        ("/sys/fs/cgroup/system.slice/cpu.max", "125000 100000\n"),
        ("/sys/fs/cgroup/system.slice/memory.max", "1000\n"),
        ("/sys/fs/cgroup/system.slice/memory.current", "900\n"),
        (
            "/sys/fs/cgroup/system.slice/memory.stat",
            "inactive_file 250\n",
        ),
        ("/sys/fs/cgroup/cpu.stat", "usage_usec 9000\n"),
    ])
}

#[test]
fn a_parents_quota_is_shared_with_siblings_and_is_fractional() {
    // The slice uses 1.0 of its 1.25 processors, of which the service uses a tenth.
    let load = systemd().cpu_after(&[
        (
            "/sys/fs/cgroup/system.slice/shop.service/cpu.stat",
            "usage_usec 101000\n",
        ),
        (
            "/sys/fs/cgroup/system.slice/cpu.stat",
            "usage_usec 1005000\nnr_periods 20\nnr_throttled 1\n",
        ),
    ]);
    assert_eq!(load, Some(Load::percent(80)));
}

#[test]
fn throttled_periods_are_a_load_even_if_the_average_is_low() {
    let load = systemd().cpu_after(&[
        (
            "/sys/fs/cgroup/system.slice/shop.service/cpu.stat",
            "usage_usec 11000\n",
        ),
        (
            "/sys/fs/cgroup/system.slice/cpu.stat",
            "usage_usec 15000\nnr_periods 20\nnr_throttled 10\n",
        ),
    ]);
    assert_eq!(load, Some(Load::percent(90)));
}

#[test]
fn without_a_quota_the_processors_count_that_a_process_may_use() {
    let machine = systemd();
    machine.remove("/sys/fs/cgroup/system.slice/cpu.max");
    let used = [(
        "/sys/fs/cgroup/system.slice/shop.service/cpu.stat",
        "usage_usec 1001000\n",
    )];
    assert_eq!(machine.cpu_after(&used), Some(Load::percent(25)));

    machine.write(&[
        (
            "/sys/fs/cgroup/system.slice/shop.service/cpu.stat",
            "usage_usec 1000\n",
        ),
        (
            "/sys/fs/cgroup/system.slice/shop.service/cpuset.cpus.effective",
            "0,2-3\n",
        ),
        (
            "/proc/self/status",
            "Name:\tshop\nCpus_allowed_list:\t0-1\n",
        ),
    ]);
    assert_eq!(machine.cpu_after(&used), Some(Load::percent(50)));
}

#[test]
fn memory_is_the_working_set_against_the_limit_of_a_parent() {
    assert_eq!(systemd().memory(), Some(Load::percent(65)));
}

#[test]
fn a_limit_that_changes_while_the_process_runs_counts_at_once() {
    let machine = systemd();
    machine.write(&[("/sys/fs/cgroup/system.slice/memory.max", "2000\n")]);
    assert_eq!(machine.memory(), Some(Load::millionths(325_000)));
}

#[test]
fn without_a_limit_memory_is_that_of_the_machine() {
    let machine = systemd();
    machine.remove("/sys/fs/cgroup/system.slice/memory.max");
    assert_eq!(machine.memory(), Some(Load::percent(60)));
    // A limit above the memory of the machine limits nothing.
    machine.write(&[("/sys/fs/cgroup/system.slice/memory.max", "1024000\n")]);
    assert_eq!(machine.memory(), Some(Load::percent(60)));
}

/// A container with a cgroup namespace of its own: its path is `/`.
#[test]
fn a_container_with_its_own_namespace_reads_its_own_files() {
    let machine = Machine::new(&[
        ("/proc/self/cgroup", "0::/\n"),
        (
            "/proc/self/mountinfo",
            "700 690 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
        ),
        ("/proc/stat", FOUR_PROCESSORS),
        ("/sys/fs/cgroup/cpu.stat", "usage_usec 0\n"),
        ("/sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ("/sys/fs/cgroup/memory.max", "1000\n"),
        ("/sys/fs/cgroup/memory.current", "830\n"),
    ]);
    let load = machine.cpu_after(&[("/sys/fs/cgroup/cpu.stat", "usage_usec 450000\n")]);
    assert_eq!(load, Some(Load::percent(90)));
    assert_eq!(machine.memory(), Some(Load::percent(83)));
}

/// A container of version 1: the path is that of the host, of which only its own part is mounted.
#[test]
fn a_container_of_the_first_version_finds_its_part_of_the_hosts_path() {
    let mounts = "\
        40 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
        41 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let machine = Machine::new(&[
        (
            "/proc/self/cgroup",
            "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
        ),
        ("/proc/self/mountinfo", mounts),
        ("/proc/stat", FOUR_PROCESSORS),
        ("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "7000000000\n"),
        ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
        ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        (
            "/sys/fs/cgroup/cpu,cpuacct/cpu.stat",
            "nr_periods 5\nnr_throttled 0\nthrottled_time 0\n",
        ),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1900\n"),
        (
            "/sys/fs/cgroup/memory/memory.stat",
            "inactive_file 1\ntotal_inactive_file 900\n",
        ),
    ]);
    let load = machine.cpu_after(&[("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "8500000000\n")]);
    assert_eq!(load, Some(Load::percent(75)));
    assert_eq!(machine.memory(), Some(Load::percent(50)));
}

/// Both versions, where version 2 has no controllers, and no limit is set anywhere.
#[test]
fn a_hybrid_machine_reads_the_version_that_has_the_controller() {
    let mounts = "\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
        34 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let machine = Machine::new(&[
        (
            "/proc/self/cgroup",
            "3:memory:/\n2:cpuacct:/\n1:cpu:/\n0::/\n",
        ),
        ("/proc/self/mountinfo", mounts),
        ("/proc/stat", FOUR_PROCESSORS),
        ("/proc/meminfo", MEMINFO),
        (
            "/proc/pressure/cpu",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 total=9\n",
        ),
        ("/sys/fs/cgroup/cpuacct/cpuacct.usage", "1000\n"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "900000\n"),
    ]);
    let load = machine.cpu_after(&[("/sys/fs/cgroup/cpuacct/cpuacct.usage", "2000001000\n")]);
    assert_eq!(load, Some(Load::percent(50)));
    assert_eq!(machine.memory(), Some(Load::percent(60)));

    let mut pressure = Pressure::of(machine.clone(), Resource::Cpu);
    assert_eq!(pressure.read(Duration::ZERO), None);
    machine.write(&[("/proc/pressure/cpu", "some avg10=99.00 total=251000\n")]);
    assert_eq!(pressure.read(SECOND), Some(Load::percent(25)));
}

#[test]
fn the_pressure_of_the_cgroup_goes_before_that_of_the_machine() {
    let machine = systemd();
    let own = "/sys/fs/cgroup/system.slice/shop.service/memory.pressure";
    machine.write(&[
        ("/proc/pressure/memory", "some total=0\n"),
        (own, "some avg10=0 total=0\n"),
    ]);
    let mut pressure = Pressure::of(machine.clone(), Resource::Memory);
    pressure.read(Duration::ZERO);
    machine.write(&[(own, "some avg10=0 total=100000\n")]);
    assert_eq!(pressure.read(SECOND), Some(Load::percent(10)));
}

#[test]
fn the_pressures_of_two_cgroups_are_not_compared() {
    let machine = systemd();
    let old = "/sys/fs/cgroup/system.slice/shop.service/cpu.pressure";
    let new = "/sys/fs/cgroup/batch.slice/cpu.pressure";
    machine.write(&[(old, "some total=1000\n"), (new, "some total=900000\n")]);
    let mut pressure = Pressure::of(machine.clone(), Resource::Cpu);
    pressure.read(Duration::ZERO);
    machine.write(&[("/proc/self/cgroup", "0::/batch.slice\n")]);
    assert_eq!(pressure.read(SECOND), None);
    machine.write(&[(new, "some total=1000000\n")]);
    assert_eq!(pressure.read(2 * SECOND), Some(Load::percent(10)));
}

/// A process that was moved out of what is mounted in its namespace.
#[test]
fn a_path_outside_the_mount_reads_the_mount() {
    let machine = Machine::new(&[
        ("/proc/self/cgroup", "0::/../other\n"),
        ("/proc/self/mountinfo", V2_MOUNT),
        ("/sys/fs/cgroup/memory.max", "100\n"),
        ("/sys/fs/cgroup/memory.current", "42\n"),
    ]);
    assert_eq!(machine.memory(), Some(Load::percent(42)));
}

/// The load is that of the machine before and after.
#[test]
fn a_move_between_groups_that_tell_nothing_changes_nothing_of_the_machines_load() {
    let machine = Machine::new(&[
        ("/proc/self/cgroup", "0::/a\n"),
        ("/proc/stat", FOUR_PROCESSORS),
    ]);
    let mut cpu = Cpu::of(machine.clone());
    cpu.read(Duration::ZERO);
    machine.write(&[("/proc/self/cgroup", "0::/b\n")]);
    cpu.read(SECOND);
    machine.write(&[("/proc/stat", "cpu  130 0 100 770 100 0 0 0 0 0\ncpu0 1\n")]);
    assert_eq!(cpu.read(2 * SECOND), Some(Load::percent(30)));
}

#[test]
fn a_machine_without_cgroups_tells_its_own_load() {
    let machine = Machine::new(&[("/proc/stat", FOUR_PROCESSORS), ("/proc/meminfo", MEMINFO)]);
    // 60 of 100 more ticks were neither idle nor waiting for a disk; those of the guest are already in the
    // user's.
    let load = machine.cpu_after(&[("/proc/stat", "cpu  140 5 110 735 105 0 0 5 999 0\ncpu0 1\n")]);
    assert_eq!(load, Some(Load::percent(60)));
    assert_eq!(machine.memory(), Some(Load::percent(60)));
}

#[test]
fn an_unreadable_load_is_absent_and_never_idle() {
    let nothing = Machine::default();
    assert_eq!(nothing.cpu_after(&[]), None);
    assert_eq!(nothing.memory(), None);
    let mut pressure = Pressure::of(nothing.clone(), Resource::Io);
    assert_eq!(
        (pressure.read(Duration::ZERO), pressure.read(SECOND)),
        (None, None)
    );
}

#[test]
fn a_reading_that_fails_once_is_followed_by_a_first_one() {
    let machine = systemd();
    let usage = "/sys/fs/cgroup/system.slice/shop.service/cpu.stat";
    let mut cpu = Cpu::of(machine.clone());
    cpu.read(Duration::ZERO);
    machine.remove(usage);
    // The machine does not replace the cgroup.
    assert_eq!((cpu.read(SECOND), cpu.read(2 * SECOND)), (None, None));
    machine.write(&[(usage, "usage_usec 4000000\n")]);
    assert_eq!(cpu.read(3 * SECOND), None);
    machine.write(&[(usage, "usage_usec 6000000\n")]);
    assert_eq!(cpu.read(4 * SECOND), Some(Load::percent(50)));
}

/// The previous group still exists, and belongs to another process.
#[test]
fn a_process_that_is_moved_is_followed_from_the_next_reading_on() {
    let machine = systemd();
    let old = "/sys/fs/cgroup/system.slice/shop.service/cpu.stat";
    let new = "/sys/fs/cgroup/batch.slice/cpu.stat";
    let mut cpu = Cpu::of(machine.clone());
    cpu.read(Duration::ZERO);
    machine.write(&[
        ("/proc/self/cgroup", "0::/batch.slice\n"),
        (new, "usage_usec 0\n"),
        ("/sys/fs/cgroup/batch.slice/cpu.max", "50000 100000\n"),
        ("/sys/fs/cgroup/batch.slice/memory.max", "1000\n"),
        ("/sys/fs/cgroup/batch.slice/memory.current", "420\n"),
        (old, "usage_usec 4001000\n"),
    ]);
    // The counts of two groups are not compared.
    assert_eq!(cpu.read(SECOND), None);
    assert_eq!(machine.memory(), Some(Load::percent(42)));
    machine.write(&[(new, "usage_usec 200000\n"), (old, "usage_usec 8001000\n")]);
    assert_eq!(cpu.read(2 * SECOND), Some(Load::percent(40)));

    // The present group has no numbers, and the machine does not replace it.
    machine.write(&[("/proc/self/cgroup", "0::/nowhere\n")]);
    assert_eq!(cpu.read(3 * SECOND), None);
    assert_eq!(cpu.read(4 * SECOND), None);
    machine.write(&[("/proc/self/cgroup", "0::/batch.slice\n")]);
    cpu.read(5 * SECOND);
    machine.write(&[(new, "usage_usec 325000\n")]);
    assert_eq!(cpu.read(6 * SECOND), Some(Load::percent(25)));
}

#[test]
fn a_process_that_is_moved_in_the_first_version_is_followed_too() {
    let mount = "40 30 0:27 / /c rw - cgroup cgroup rw,cpu,cpuacct\n";
    let machine = Machine::new(&[
        ("/proc/self/cgroup", "3:cpu,cpuacct:/old\n"),
        ("/proc/self/mountinfo", mount),
        ("/proc/stat", FOUR_PROCESSORS),
        ("/c/old/cpuacct.usage", "0\n"),
        ("/c/new/cpuacct.usage", "0\n"),
    ]);
    let mut cpu = Cpu::of(machine.clone());
    cpu.read(Duration::ZERO);
    machine.write(&[("/proc/self/cgroup", "3:cpu,cpuacct:/new\n")]);
    assert_eq!(cpu.read(SECOND), None);
    machine.write(&[
        ("/c/old/cpuacct.usage", "4000000000\n"),
        ("/c/new/cpuacct.usage", "1000000000\n"),
    ]);
    assert_eq!(cpu.read(2 * SECOND), Some(Load::percent(25)));
}

#[test]
fn a_counter_that_begins_anew_and_a_clock_that_steps_back_tell_nothing() {
    let machine = systemd();
    let usage = "/sys/fs/cgroup/system.slice/shop.service/cpu.stat";
    assert_eq!(machine.cpu_after(&[(usage, "usage_usec 0\n")]), None);
    let mut cpu = Cpu::of(machine.clone());
    cpu.read(SECOND);
    assert_eq!(cpu.read(Duration::ZERO), None);
    // Without any time between two readings there is no rate.
    assert_eq!(cpu.read(Duration::ZERO), None);
}
