//! Where a worker takes sessions.

use std::fmt;
use std::str::FromStr;

/// `host:port` of a worker's session service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

/// Not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not HOST:PORT")]
pub struct AddressError(String);

impl Address {
    /// Returns the address as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let well_formed = text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(AddressError(text.to_owned())) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in ["host:1", "10.0.0.1:65535", "[::1]:80"] {
            assert_eq!(good.parse::<Address>().map(|address| address.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"] {
            let error = bad.parse::<Address>().expect_err(bad);
            assert_eq!(error.to_string(), format!("{bad:?} is not HOST:PORT"));
        }
    }
}
