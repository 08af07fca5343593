use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::key::Secret;
use crate::store::Charge;

/// Returns the parameter `pk` of draft 11 for each charge: a keyed hash that is the same for the
/// same key and does not reveal the key.
pub(super) fn parameters(secret: &Secret, charges: &[Charge]) -> Vec<String> {
    let keys = charges.iter().map(|charge| secret.partition(&charge.key));
    keys.map(|hash| format!(";pk=:{}:", STANDARD.encode(hash)))
        .collect()
}
