//! Address guard: which addresses a crawl may talk to.
//!
//! A page decides where its links point, and a name server decides where a name points; without a guard either can make
//! a node read what only its own network may read: a cloud's metadata service, a router's status page, a neighbour's
//! database. So every address that is not public is refused, unless `allow` names it.
//!
//! The rule is asked three times: for an address written in the URL ([`AddressGuard::permits`] before the request), for
//! the answers of the resolver (`dns.rs`, the only resolver the connector has, so nothing is looked up twice and
//! rebinding has no window), and for the peer of the connection that was really made. A redirect is a URL of its own
//! and passes all three again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// IPv4 ranges that are not the public Internet (IANA special-purpose registry, multicast included), as
/// (first address, prefix length).
const REFUSED_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network, unspecified
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // shared by carriers (CGNAT); some clouds keep metadata here
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, 169.254.169.254 is the metadata service
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays, withdrawn
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarking
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, limited broadcast
    (Ipv4Addr::new(168, 63, 129, 16), 32), // a public number, yet it is Azure's host agent from inside Azure
];

/// IPv6 ranges inside 2000::/3 that are not public; outside 2000::/3 nothing is, NAT64 aside.
const REFUSED_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments: Teredo, ORCHID, benchmarking
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Decides which addresses may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressGuard {
    allow: Vec<IpNet>,
}

impl AddressGuard {
    /// Returns a guard that permits public addresses and those in `allow`.
    pub fn new(allow: Vec<IpNet>) -> Self {
        AddressGuard { allow }
    }

    /// Returns whether `address` may be connected to.
    pub fn permits(&self, address: IpAddr) -> bool {
        // `::ffff:127.0.0.1` reaches the same socket as `127.0.0.1`, so it is the same address here too.
        let address = address.to_canonical();
        if self.allow.iter().any(|net| net.contains(&address)) {
            return true;
        }
        match address {
            IpAddr::V4(v4) => !in_any_v4(v4),
            IpAddr::V6(v6) => match embedded_v4(v6) {
                Some(v4) => self.permits(IpAddr::V4(v4)),
                None => is_public_v6(v6),
            },
        }
    }
}

/// Returns the IPv4 address a translator or tunnel would take the packet to: NAT64 (RFC 6052) and 6to4 (RFC 3056).
/// On a network that has IPv6 alone, DNS64 gives every IPv4 host a NAT64 address, so these are judged by what is inside
/// them. Teredo and IPv4-compatible addresses are refused whatever they contain: no site lives there.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b) {
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => Some(join(g, h)),
        (0x2002, _) => Some(join(b, c)),
        _ => None,
    }
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let global_unicast = address.segments()[0] & 0xe000 == 0x2000;
    global_unicast && !REFUSED_V6.iter().any(|&(net, bits)| same_prefix_v6(address, net, bits))
}

fn in_any_v4(address: Ipv4Addr) -> bool {
    REFUSED_V4.iter().any(|&(net, bits)| (address.to_bits() ^ net.to_bits()) >> (32 - u32::from(bits)) == 0)
}

fn same_prefix_v6(address: Ipv6Addr, net: Ipv6Addr, bits: u8) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (128 - u32::from(bits)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn guard(allow: &[&str]) -> AddressGuard {
        AddressGuard::new(allow.iter().map(|net| net.parse().unwrap()).collect())
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        let refused = "
            0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
            127.255.255.254 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192
            192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.7
            203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::7f00:1
            ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
            64:ff9b::7f00:1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 100::1 2001::1
            2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1::
            2002:a00:1::1 2002:c0a8:101::1 3fff::1 3fff:fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1
            febf::1 fec0::1 ff02::1 4000::1";
        for text in refused.split_whitespace() {
            assert!(!guard(&[]).permits(ip(text)), "{text} must be refused");
        }
    }

    #[test]
    fn public_addresses_are_permitted_to_the_edges_of_the_refused_ranges() {
        let permitted = "
            1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
            169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255
            192.169.0.0 198.17.255.255 198.20.0.0 203.0.112.255 203.0.114.0 223.255.255.255 ::ffff:8.8.8.8
            64:ff9b::808:808 2001:200::1 2001:4860:4860::8888 2001:db7:ffff::1 2001:db9::1 2002:808:808::1
            2606:4700::1111 2a00:1450::1 3ffe::1";
        for text in permitted.split_whitespace() {
            assert!(guard(&[]).permits(ip(text)), "{text} must be permitted");
        }
    }

    #[test]
    fn the_allow_list_opens_what_it_names_and_nothing_more() {
        let guard = guard(&["127.0.0.0/8", "fd00::/8", "10.1.2.3/32"]);
        for text in ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "fd12::1", "10.1.2.3", "64:ff9b::10.1.2.3"] {
            assert!(guard.permits(ip(text)), "{text} is allowed");
        }
        for text in ["10.1.2.4", "::1", "fc00::1", "169.254.169.254", "::7f00:1"] {
            assert!(!guard.permits(ip(text)), "{text} is not allowed");
        }
    }

    proptest! {
        #[test]
        fn embedding_never_makes_an_address_more_public(bits: u32) {
            let guard = guard(&[]);
            let v4 = Ipv4Addr::from(bits);
            let direct = guard.permits(IpAddr::V4(v4));
            prop_assert_eq!(guard.permits(IpAddr::V6(v4.to_ipv6_mapped())), direct);
            prop_assert!(!guard.permits(IpAddr::V6(v4.to_ipv6_compatible())));
            let nat64 = Ipv6Addr::from((0x0064_ff9b_u128 << 96) | u128::from(bits));
            prop_assert_eq!(guard.permits(IpAddr::V6(nat64)), direct);
            let six_to_four = Ipv6Addr::from((0x2002_u128 << 112) | (u128::from(bits) << 80) | 1);
            prop_assert_eq!(guard.permits(IpAddr::V6(six_to_four)), direct);
        }

        #[test]
        fn what_the_standard_library_calls_local_is_refused(bits: u32) {
            let v4 = Ipv4Addr::from(bits);
            let local = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
            prop_assert!(!(local && guard(&[]).permits(IpAddr::V4(v4))));
        }

        #[test]
        fn nothing_outside_global_unicast_is_permitted_but_translated_ipv4(bits: u128) {
            let v6 = Ipv6Addr::from(bits);
            let local = v6.is_loopback() || v6.is_multicast() || v6.is_unspecified() || v6.is_unique_local()
                || v6.is_unicast_link_local();
            prop_assert!(!(local && guard(&[]).permits(IpAddr::V6(v6))));
            if guard(&[]).permits(IpAddr::V6(v6)) {
                let translated = v6.to_ipv4_mapped().is_some() || v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
                prop_assert!(translated || v6.segments()[0] >> 13 == 1);
            }
        }

        #[test]
        fn an_address_in_the_allow_list_is_always_permitted(bits: u128, prefix in 0_u8..=128) {
            let v6 = IpAddr::V6(Ipv6Addr::from(bits));
            prop_assume!(v6.to_canonical() == v6);
            let guard = AddressGuard::new(vec![IpNet::new(v6, prefix).unwrap()]);
            prop_assert!(guard.permits(v6));
        }
    }
}
