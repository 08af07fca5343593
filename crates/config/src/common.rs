//! What the keys and the policies of a file share.

use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, Proxies, Secret};
use tower_ratelimit::usage::Prices;

/// The settings that the keys and the policies of a file share.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    /// The factor of the policies that follow the load.
    pub(super) factor: Option<FactorCell>,
    pub(super) proxies: Option<(Proxies, Forwarding)>,
    pub(super) secret: Option<Secret>,
    /// What the tokens of models cost.
    pub(super) prices: Option<Prices>,
}

impl Common {
    /// Returns the address of the client, behind the proxies of the file.
    pub(super) fn client_ip(&self) -> Extractor<ClientIp> {
        match &self.proxies {
            Some((proxies, forwarding)) => {
                key::client_ip().behind(proxies.clone(), forwarding.clone())
            }
            None => key::client_ip(),
        }
    }
}
