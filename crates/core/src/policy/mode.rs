//! The mode of a policy: enforced, in shadow or off; and a handle that changes it while it is in use.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::ConfigError;

const ALL_OFF: Diagnostic = Diagnostic::new(
    "TRL028",
    "",
    "all limits of a layer are switched off or to shadow, and nothing is refused",
    "switch them on again with `Modes::set_all(Mode::Enforce)`; in a file of limits: `mode = \"enforce\"`, or no `mode`",
);

/// The effect of a policy's decisions. The default is [`Enforce`](Self::Enforce).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Requests over the limit are refused.
    #[default]
    Enforce,
    /// The policy decides as if it were enforced, and refuses no request.
    ///
    /// - Its charges are made for requests that it allows, if the enforced policies allow them too.
    /// - Responses do not mention it, and no request waits for it.
    /// - [`Decision::would_refuse`](crate::Decision::would_refuse) names it, behind a layer in the extension
    ///   [`WouldRefuse`][WouldRefuse] of the request, and
    ///   [`PolicyStats::shadow_refused`](crate::observe::PolicyStats::shadow_refused) counts them.
    ///
    /// [WouldRefuse]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/middleware/struct.WouldRefuse.html
    Shadow,
    /// The policy decides nothing.
    Off,
}

impl Mode {
    fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Enforce),
            2 => Some(Self::Shadow),
            3 => Some(Self::Off),
            _ => None,
        }
    }

    fn number(mode: Option<Self>) -> u8 {
        mode.map_or(0, |mode| mode as u8 + 1)
    }
}

/// Writes the mode as in a file of limits: `enforce`, `shadow`, `off`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        })
    }
}

/// Changes the modes of policies while a layer or a limiter uses them, from the next request on.
///
/// A switch does not use the store, so it works while the store does not answer. A mode that is set here
/// holds until it is unset, whatever the policy or the file of limits says, and after a reload too. Clones
/// are handles of the same switches.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::policy::{Mode, Modes};
/// use tower_ratelimit::{FixedWindow, Limiter, Policy};
///
/// let modes = Modes::new();
/// let limiter = Limiter::builder()
///     .policy(Policy::new("hourly", FixedWindow::per_hour(1)))
///     .modes(&modes)
///     .build_local()?;
/// assert!(limiter.check("ann", 1).now().is_allowed());
/// assert!(!limiter.check("ann", 1).now().is_allowed());
///
/// modes.set("hourly", Mode::Shadow)?;
/// let decision = limiter.check("ann", 1).now();
/// assert!(decision.is_allowed());
/// assert_eq!(decision.would_refuse().next().unwrap().0, "hourly");
/// assert_eq!(limiter.snapshot().policy("hourly").unwrap().shadow_refused, 1);
///
/// modes.set_all(Mode::Off);
/// assert_eq!(limiter.check("ann", 1).now().policies().count(), 0);
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Default)]
pub struct Modes {
    shared: Arc<Switches>,
}

#[derive(Default)]
struct Switches {
    /// Whether any mode is set, so that a request has to look.
    is_any_set: AtomicBool,
    all: Switch,
    by_name: Mutex<Names>,
}

/// Switches by the names of their policies.
type Names = HashMap<String, Arc<Switch>>;

/// The mode of a policy, or of all of them.
#[derive(Debug, Default)]
struct Switch {
    /// The mode in the newest configuration.
    declared: AtomicU8,
    /// The mode that the handle has set, if any.
    set: AtomicU8,
}

impl Switch {
    fn set(&self) -> Option<Mode> {
        Mode::of_number(self.set.load(Ordering::Relaxed))
    }

    fn mode(&self) -> Mode {
        let declared = || Mode::of_number(self.declared.load(Ordering::Relaxed));
        self.set().or_else(declared).unwrap_or_default()
    }
}

impl Modes {
    /// Makes switches for the policies of the layers and limiters that are then built with them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode of the policy with this name.
    ///
    /// # Errors
    ///
    /// When no layer or limiter that uses these modes has such a policy. The error lists the known policies.
    pub fn set(&self, policy: &str, mode: Mode) -> Result<(), ConfigError> {
        self.put(policy, Some(mode))
    }

    /// Sets the mode of the policy back to the declared one.
    ///
    /// # Errors
    ///
    /// See [`set`](Self::set).
    pub fn unset(&self, policy: &str) -> Result<(), ConfigError> {
        self.put(policy, None)
    }

    /// Sets the mode of all policies together. It can only weaken: a policy that is off stays off, and a
    /// policy in shadow is not enforced.
    pub fn set_all(&self, mode: Mode) {
        self.put_all(Some(mode));
    }

    /// Sets the mode of all policies together back to the declared one.
    pub fn unset_all(&self) {
        self.put_all(None);
    }

    /// Returns the mode of a policy for the next request, or `None` if no policy has this name.
    pub fn of(&self, policy: &str) -> Option<Mode> {
        let mode = self.names().get(policy)?.mode();
        Some(mode.max(self.shared.all.mode()))
    }

    /// Returns the modes of these policies, for one configuration.
    pub(crate) fn declared(
        &self,
        all: Mode,
        policies: impl Iterator<Item = (String, Mode)>,
    ) -> DeclaredModes {
        let all_declared = Mode::number(Some(all));
        self.shared
            .all
            .declared
            .store(all_declared, Ordering::Relaxed);
        let mut names = self.names();
        let each: Box<[_]> = policies
            .map(|(name, mode)| {
                let switch = Arc::clone(names.entry(name).or_default());
                let declared = Mode::number(Some(mode));
                switch.declared.store(declared, Ordering::Relaxed);
                (mode, switch)
            })
            .collect();
        if all != Mode::Enforce {
            warn_once_of(&ALL_OFF, format!("mode {all}"));
        }
        drop(names);
        DeclaredModes {
            is_plain: all == Mode::Enforce && each.iter().all(|(mode, _)| *mode == Mode::Enforce),
            all,
            each,
            modes: self.clone(),
        }
    }

    fn put(&self, policy: &str, mode: Option<Mode>) -> Result<(), ConfigError> {
        let names = self.names();
        let Some(switch) = names.get(policy) else {
            let mut known: Vec<&str> = names.keys().map(String::as_str).collect();
            known.sort_unstable();
            let remedy = format!("name one of {}", known.join(", "));
            return Err(ConfigError::quoting("policy", policy, remedy));
        };
        switch.set.store(Mode::number(mode), Ordering::Relaxed);
        self.look(&names);
        Ok(())
    }

    fn put_all(&self, mode: Option<Mode>) {
        let names = self.names();
        let number = Mode::number(mode);
        self.shared.all.set.store(number, Ordering::Relaxed);
        self.look(&names);
        drop(names);
        if let Some(mode @ (Mode::Shadow | Mode::Off)) = mode {
            warn_once_of(&ALL_OFF, format!("mode {mode}"));
        }
    }

    fn look(&self, names: &Names) {
        let mut switches = names.values();
        let is_any = self.shared.all.set().is_some() || switches.any(|it| it.set().is_some());
        self.shared.is_any_set.store(is_any, Ordering::Release);
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        let by_name = &self.shared.by_name;
        by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        let each = names.iter().map(|(name, switch)| (name, switch.mode()));
        f.debug_map().entries(each).finish()
    }
}

/// The modes of the policies of one configuration, by index, with the switches that can change them.
#[derive(Debug)]
pub struct DeclaredModes {
    /// Whether all are declared as enforced.
    is_plain: bool,
    all: Mode,
    each: Box<[(Mode, Arc<Switch>)]>,
    modes: Modes,
}

impl DeclaredModes {
    /// Returns whether all policies are enforced. Most requests need no more.
    #[inline]
    pub fn are_plain(&self) -> bool {
        self.is_plain && !self.modes.shared.is_any_set.load(Ordering::Acquire)
    }

    /// Returns the mode of a policy.
    pub fn of(&self, policy: usize) -> Mode {
        let all = self.modes.shared.all.set().unwrap_or(self.all);
        let each = self.each.get(policy);
        let own = each.map_or(Mode::Enforce, |(mode, switch)| {
            switch.set().unwrap_or(*mode)
        });
        own.max(all)
    }

    pub(crate) fn modes(&self) -> &Modes {
        &self.modes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(modes: &Modes, all: Mode, own: Mode) -> DeclaredModes {
        modes.declared(all, [("a".to_owned(), own)].into_iter())
    }

    #[test]
    fn all_together_only_weakens() {
        use Mode::{Enforce, Off, Shadow};
        for (all, own, expected) in [
            (Enforce, Enforce, Enforce),
            (Enforce, Shadow, Shadow),
            (Shadow, Enforce, Shadow),
            (Shadow, Off, Off),
            (Off, Shadow, Off),
        ] {
            let modes = Modes::new();
            let as_declared = declared(&modes, all, own);
            assert_eq!(as_declared.of(0), expected, "{all} {own}");
            assert_eq!(as_declared.are_plain(), expected == Enforce);

            let plain = declared(&modes, Enforce, Enforce);
            modes.set_all(all);
            modes.set("a", own).unwrap();
            assert_eq!(plain.of(0), expected, "{all} {own}");
            assert_eq!(modes.of("a"), Some(expected));
            modes.unset_all();
            modes.unset("a").unwrap();
            assert!(plain.are_plain());
        }
    }

    #[test]
    fn a_switch_holds_for_the_next_configuration_and_the_one_before() {
        let modes = Modes::new();
        let before = declared(&modes, Mode::Enforce, Mode::Shadow);
        modes.set("a", Mode::Off).unwrap();
        let next = declared(&modes, Mode::Shadow, Mode::Enforce);
        assert_eq!((before.of(0), next.of(0)), (Mode::Off, Mode::Off));
        modes.set("a", Mode::Enforce).unwrap();
        assert_eq!((before.of(0), next.of(0)), (Mode::Enforce, Mode::Shadow));
        modes.set_all(Mode::Enforce);
        assert_eq!(next.of(0), Mode::Enforce);
    }

    #[test]
    fn a_policy_that_is_not_there_has_no_mode() {
        let modes = Modes::new();
        drop(declared(&modes, Mode::Enforce, Mode::Enforce));
        let error = modes.set("b", Mode::Off).unwrap_err();
        assert!(error.to_string().contains("name one of a"), "{error}");
        assert_eq!(modes.of("b"), None);
    }
}
