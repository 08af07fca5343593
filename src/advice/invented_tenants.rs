//! Finds limits that are divided among tenants whose names a client invents.

use tower_ratelimit_core::__internal::warn_once_of;

use crate::diagnostics::Diagnostic;
use crate::policy::{Http, Policy};

const INVENTED: Diagnostic = Diagnostic::new(
    "TRL041",
    "",
    "the limit is divided among tenants by what a client chooses, which has as many shares as it invents tenants",
    "take the tenant from what authentication has verified, such as an extension of the request, or count tenants that no plan \
     names as one: `Fair::new().unverified_together()`, in a file of limits: `unverified = \"together\"`. If a gateway or a closure \
     has verified what the client has sent, say `unverified_apart()`, in a file: `unverified = \"apart\"`",
);

/// Warns of a policy whose tenants a client can invent.
pub(crate) fn warn_of_invented_tenants(policy: &Policy<Http>) {
    if let Some(chosen) = policy.invented_tenants() {
        warn_once_of(&INVENTED, format!("policy {:?}, {chosen}", policy.name()));
    }
}
