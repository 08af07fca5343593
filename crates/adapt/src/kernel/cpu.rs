//! How busy the processors are that this process may use.
//!
//! A cgroup has a quota, or one of its parents has one, or the process may use all processors that it is
//! allowed on. At each level with a quota, the use is compared with that quota: siblings share the quota of a
//! parent, and then a child is throttled that does little itself. An average hides throttling, since a quota
//! applies to each tenth of a second, so the share of throttled periods is a load too. The worst of all
//! counts.

use std::time::Duration;

use super::cgroup::Cgroup;
use super::files::{Files, count_of_list, number_of};
use crate::Load;

/// The source of the numbers.
#[derive(Clone, Debug)]
pub(super) enum UsageSource {
    /// All numbers in one hierarchy.
    Unified(Cgroup),
    /// The use and the quota in hierarchies of their own, which may be the same.
    Apart {
        usage: Cgroup,
        quota: Option<Cgroup>,
    },
    /// The machine as a whole, without cgroups.
    Machine,
}

/// The kernel's counts at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// From the inside out.
    levels: Vec<Level>,
    /// The number of processors that this process may use, whatever its quota is.
    processors: u32,
    /// Busy and all ticks of the machine, without cgroups.
    ticks: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Level {
    /// In microseconds.
    used: Option<u64>,
    /// Microseconds of use, and of the period to which they apply.
    quota: Option<(u64, u64)>,
    /// The number of periods, and of those in which it was throttled.
    throttled: Option<(u64, u64)>,
}

impl UsageSource {
    pub(super) fn find(files: &dyn Files) -> Self {
        // A machine can have both versions, and then the controller is in version 1.
        if let Some(usage) = Cgroup::of_controller(files, "cpuacct") {
            let quota = Cgroup::of_controller(files, "cpu");
            let source = Self::Apart { usage, quota };
            if source.is_readable(files) {
                return source;
            }
        }
        let unified = Cgroup::unified(files).map(Self::Unified);
        unified
            .filter(|source| source.is_readable(files))
            .unwrap_or(Self::Machine)
    }

    pub(super) fn is_machine(&self) -> bool {
        matches!(self, Self::Machine)
    }

    fn is_readable(&self, files: &dyn Files) -> bool {
        self.levels(files)
            .first()
            .is_some_and(|own| own.used.is_some())
    }

    /// Returns the present counts, or `None` if they cannot be read any more.
    pub(super) fn read(&self, files: &dyn Files) -> Option<Usage> {
        let levels = self.levels(files);
        let is_machine = self.is_machine();
        if !is_machine && levels.first().is_none_or(|own| own.used.is_none()) {
            return None;
        }
        let stat = files.read("/proc/stat");
        let ticks = stat.as_deref().and_then(ticks).filter(|_| is_machine);
        if is_machine && ticks.is_none() {
            return None;
        }
        Some(Usage {
            levels,
            processors: self.processors(files, stat.as_deref())?,
            ticks,
        })
    }

    fn levels(&self, files: &dyn Files) -> Vec<Level> {
        match self {
            Self::Unified(cgroup) => {
                let levels = cgroup.directories().map(|directory| {
                    let stat = files.read(&format!("{directory}/cpu.stat"));
                    let stat = stat.unwrap_or_default();
                    let quota = files.read(&format!("{directory}/cpu.max"));
                    Level {
                        used: number_of(&stat, "usage_usec"),
                        quota: quota.as_deref().and_then(|text| {
                            let (quota, period) = text.trim().split_once(' ')?;
                            pair(quota, period)
                        }),
                        throttled: throttled(&stat),
                    }
                });
                levels.collect()
            }
            Self::Apart { usage, quota } => {
                let read = |directory: &str, file: &str| files.read(&format!("{directory}/{file}"));
                let used = usage.directories().map(|directory| {
                    let used = read(directory, "cpuacct.usage")?;
                    Some(used.trim().parse::<u64>().ok()? / 1_000)
                });
                let used: Vec<_> = used.collect();
                let Some(quota) = quota else {
                    let level = |used| Level {
                        used,
                        ..Level::default()
                    };
                    return used.into_iter().map(level).collect();
                };
                // Both hierarchies, from the inside out: nearly always the same groups under two names.
                let mut used = used.into_iter();
                let levels = quota.directories().map(|directory| {
                    let period = read(directory, "cpu.cfs_period_us").unwrap_or_default();
                    let quota = read(directory, "cpu.cfs_quota_us").unwrap_or_default();
                    Level {
                        used: used.next().flatten(),
                        quota: pair(quota.trim(), period.trim()),
                        throttled: throttled(&read(directory, "cpu.stat").unwrap_or_default()),
                    }
                });
                levels.collect()
            }
            Self::Machine => Vec::new(),
        }
    }

    /// Returns how many processors this process may use: at most those of its cpuset, of its affinity and of
    /// the machine.
    fn processors(&self, files: &dyn Files, stat: Option<&str>) -> Option<u32> {
        let cpuset = match self {
            Self::Unified(cgroup) => files.read(&format!("{}/cpuset.cpus.effective", cgroup.own())),
            Self::Apart { .. } => Cgroup::of_controller(files, "cpuset").and_then(|cgroup| {
                let read = |file: &str| files.read(&format!("{}/{file}", cgroup.own()));
                read("cpuset.effective_cpus").or_else(|| read("cpuset.cpus"))
            }),
            Self::Machine => None,
        };
        let status = files.read("/proc/self/status");
        let allowed = status.as_deref().and_then(|status| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        });
        let is_processor = |line: &&str| {
            let number = line
                .strip_prefix("cpu")
                .and_then(|rest| rest.split(' ').next());
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let of_machine = stat.map(|stat| stat.lines().filter(is_processor).count());
        let counts = [
            cpuset.as_deref().and_then(count_of_list),
            allowed.and_then(count_of_list),
            of_machine.and_then(|count| u32::try_from(count).ok()),
        ];
        counts
            .into_iter()
            .flatten()
            .filter(|count| *count > 0)
            .min()
    }
}

impl Usage {
    /// Returns the load since an earlier moment, this long ago. Returns `None` if it is unknown, as after a
    /// reset of the counters.
    pub(super) fn since(&self, earlier: &Self, elapsed: Duration) -> Option<Load> {
        if let (Some((busy, all)), Some((busy_then, all_then))) = (self.ticks, earlier.ticks) {
            let busy = busy.checked_sub(busy_then)?;
            return Load::of(busy, all.checked_sub(all_then)?);
        }
        let elapsed = u64::try_from(elapsed.as_micros()).ok()?;
        let own = self.levels.first()?.used?;
        let own_then = earlier.levels.first()?.used?;
        let room = elapsed.checked_mul(self.processors.into())?;
        let mut worst = Load::of(own.checked_sub(own_then)?, room)?;
        // A process that was moved to another depth cannot be compared this time.
        let is_same_depth = self.levels.len() == earlier.levels.len();
        let both = self.levels.iter().zip(&earlier.levels);
        for (now, then) in both.filter(|_| is_same_depth) {
            let of_quota = now.of_quota(then, elapsed);
            let loads = of_quota.into_iter().chain(now.throttled_since(then));
            worst = loads.fold(worst, Load::max);
        }
        Some(worst)
    }
}

impl Level {
    fn of_quota(&self, earlier: &Self, elapsed: u64) -> Option<Load> {
        let (quota, period) = self.quota?;
        let used = self.used?.checked_sub(earlier.used?)?;
        // Both sides times the period, so that 1.25 processors are exact.
        let room = u128::from(elapsed) * u128::from(quota);
        let used = u128::from(used) * u128::from(period);
        let millionths = used.checked_mul(1_000_000)?.checked_div(room)?;
        Some(Load::millionths(
            u32::try_from(millionths).unwrap_or(u32::MAX),
        ))
    }

    fn throttled_since(&self, earlier: &Self) -> Option<Load> {
        let ((periods, throttled), (periods_then, throttled_then)) =
            (self.throttled?, earlier.throttled?);
        Load::of(
            throttled.checked_sub(throttled_then)?,
            periods.checked_sub(periods_then)?,
        )
    }
}

/// Parses a quota and its period, in microseconds. No quota is `max` in version 2 and -1 in version 1.
fn pair(quota: &str, period: &str) -> Option<(u64, u64)> {
    let (quota, period) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0 && period > 0).then_some((quota, period))
}

fn throttled(stat: &str) -> Option<(u64, u64)> {
    Some((
        number_of(stat, "nr_periods")?,
        number_of(stat, "nr_throttled")?,
    ))
}

/// Parses busy and all ticks from the first line of `/proc/stat`: user, nice, system, idle, iowait, irq,
/// softirq, steal. The time of guests is already in the first two.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut numbers = [0; 8];
    let mut texts = line.split_ascii_whitespace();
    for (index, number) in numbers.iter_mut().enumerate() {
        match texts.next() {
            Some(text) => *number = text.parse().ok()?,
            // Old kernels have fewer numbers.
            None if index >= 4 => {}
            None => return None,
        }
    }
    let all = numbers
        .iter()
        .try_fold(0_u64, |all, number| all.checked_add(*number))?;
    let idle = numbers[3].checked_add(numbers[4])?;
    Some((all.checked_sub(idle)?, all))
}
