//! Vendor headers with one address.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header::InvalidHeaderName};

use super::address::{address, address_before_port};
use crate::error::ConfigError;

/// A header that holds the address of the client and nothing else; see [`Forwarding::single`].
///
/// [`Forwarding::single`]: super::Forwarding::single
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleValue {
    name: HeaderName,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Address,
    AddressBeforePort,
}

impl SingleValue {
    pub(super) const fn address(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            form: Form::Address,
        }
    }

    pub(super) const fn address_before_port(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            form: Form::AddressBeforePort,
        }
    }

    pub(super) fn try_named(name: &str) -> Result<Self, ConfigError> {
        let name = name.parse().map_err(|_: InvalidHeaderName| {
            ConfigError::quoting("single", name, "give a name such as x-client-ip")
        })?;
        Ok(Self {
            name,
            form: Form::Address,
        })
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &HeaderName {
        &self.name
    }

    /// `None` too if the header is there twice: a proxy that sets it replaces what a client has
    /// sent, so one of the two is not from the proxy.
    pub(super) fn client(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let mut lines = headers.get_all(&self.name).into_iter();
        let text = lines.next()?.as_bytes().trim_ascii();
        if lines.next().is_some() {
            return None;
        }
        match self.form {
            Form::Address => address(text),
            Form::AddressBeforePort => address_before_port(text),
        }
    }
}
