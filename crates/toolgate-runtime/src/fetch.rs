//! Fetching: the port, and which addresses of the network are nobody's but this machine's and its neighbours'.
//!
//! An address is judged by its host before anything is connected to, each redirect is judged again, and what is connected to is the
//! address that was looked at: a name is resolved once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toolgate_core::{approval::Source, tool::Effect};

use crate::{BoxFuture, gate::Permit};

/// Gets what an address leads to.
pub trait Fetch: Send + Sync {
    /// The host that an address leads to first, as a decision is to name it. Connects to nothing.
    ///
    /// # Errors
    /// When it is no http(s) address.
    fn host(&self, address: &str) -> Result<String, FetchError>;

    /// What is there, so many bytes at most. Each host on the way must be covered by the permit, and no private address is connected to
    /// unless a rule or a person has allowed exactly that host.
    ///
    /// # Errors
    /// Why there is nothing.
    fn get<'a>(
        &'a self,
        permit: &'a Permit,
        address: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<u8>, FetchError>>;
}

/// Why nothing was fetched, for the model to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No address that is fetched.
    #[error("{0}")]
    Address(String),
    /// Something that the permit does not cover.
    #[error("not fetched: {by}")]
    Blocked {
        /// What would have to be allowed.
        effect: Effect,
        /// What stood in the way.
        by: String,
    },
    /// More than was asked for.
    #[error("Image too large: {}more than the 5.0 MB limit.", .0.map(|bytes| format!("{:.1} MB, ", bytes as f64 / 1e6)).unwrap_or_default())]
    TooLarge(Option<u64>),
    /// The server said no.
    #[error("Download failed: {address} answered with status {status}.")]
    Status {
        /// Without its query, which may be secret.
        address: String,
        /// The HTTP status.
        status: u16,
    },
    /// It did not come.
    #[error("Download failed: {0}")]
    Failed(String),
}

/// Whether a permit covers a host.
pub fn covers(permit: &Permit, host: &str) -> bool {
    permit.call().effects().iter().any(|effect| matches!(effect, Effect::Connect(allowed) if allowed == host))
}

/// Whether a permit covers a host although it is a private one: a rule names this very host, or a person was asked for it and could see
/// from its own letters that it is private. A rule for whatever lies below a domain knows no address: who owns the domain says where its
/// names lead.
pub fn covers_private(permit: &Permit, host: &str) -> bool {
    let basis = &permit.decision().basis;
    let knew = match basis.source {
        Source::Rule => basis.rule.as_deref().is_some_and(|rule| names(rule, host)),
        Source::Person | Source::Grant => host == "localhost" || literal(host).is_some(),
        Source::Mode | Source::Default | Source::Hook => false,
    };
    knew && covers(permit, host)
}

/// Whether a rule, as it was written, is about this host and no other.
fn names(rule: &str, host: &str) -> bool {
    let domain = rule.split_once("(domain:").and_then(|(_, rest)| rest.strip_suffix(')'));
    domain.is_some_and(|domain| domain.eq_ignore_ascii_case(host))
}

/// The address that a host is by its own letters, where it is no name.
pub fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// Whether an address is one of the public network.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        // This network, the carrier's own addresses, assignments of the registry, tests of networks, the former class E.
        (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) | (240.., ..) => true,
        _ => false,
    };
    !(special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Addresses that carry one of the older kind lead where that one leads.
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => v4(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        // Translated (NAT64) and tunnelled (6to4) ones.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, ..] => false,
        [0x2002, high, low, ..] => v4(high, low),
        // Teredo, documentation, and everything outside the global unicast block.
        [0x2001, 0 | 0xdb8, ..] => false,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_told_however_they_are_dressed() {
        for address in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:1::1",
            "2001:db8::1",
            "fe80::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "fec0::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
