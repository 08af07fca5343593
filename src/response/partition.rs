use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::key::Secret;
use crate::store::Charge;

/// Who is counted by each of these charges, as the parameter `pk` of draft 11: the same for the
/// same key, and of no use to whoever wants to know the key.
pub(super) fn parameters(secret: &Secret, charges: &[Charge]) -> Vec<String> {
    let keys = charges.iter().map(|charge| secret.partition(&charge.key));
    keys.map(|hash| format!(";pk=:{}:", STANDARD.encode(hash)))
        .collect()
}
