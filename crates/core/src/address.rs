//! Classification of IP addresses as public, loopback or private, and the order in which the addresses of a host are
//! tried. A fetch that a server or a token can cause may reach non-public addresses only if the config names them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Network zone of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// The public internet.
    Public,
    /// This machine.
    Loopback,
    /// A private, link-local, multicast or reserved range.
    Private,
}

/// Returns the zone of an address. An IPv6 address that embeds an IPv4 address has the zone of the latter.
pub fn zone(address: IpAddr) -> Zone {
    match address {
        IpAddr::V4(address) => zone_of_v4(address),
        IpAddr::V6(address) => zone_of_v6(address),
    }
}

fn zone_of_v4(address: Ipv4Addr) -> Zone {
    let [a, b, c, _] = address.octets();
    if address.is_loopback() {
        return Zone::Loopback;
    }
    let reserved = matches!((a, b, c), (0 | 240..=255, ..) | (192, 0, 0) | (192, 88, 99))
        // Carrier-grade NAT (RFC 6598).
        || (a == 100 && (64..=127).contains(&b))
        // Benchmarking between networks (RFC 2544).
        || (a == 198 && matches!(b, 18 | 19));
    let private = reserved
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation();
    if private { Zone::Private } else { Zone::Public }
}

fn zone_of_v6(address: Ipv6Addr) -> Zone {
    if address.is_loopback() {
        return Zone::Loopback;
    }
    let parts = address.segments();
    let v4_of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        // IPv4-mapped: the system connects to the IPv4 address itself.
        [0, 0, 0, 0, 0, 0xffff, high, low] => zone_of_v4(v4_of(high, low)),
        // IPv4-compatible, NAT64 (RFC 6052) and 6to4: packets leave this machine, even if the embedded address is
        // loopback.
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            match zone_of_v4(v4_of(high, low)) {
                Zone::Public => Zone::Public,
                Zone::Loopback | Zone::Private => Zone::Private,
            }
        }
        // Global unicast, except Teredo, benchmarking, ORCHID and documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Zone::Private,
        [0x2000..=0x3fff, ..] => Zone::Public,
        _ => Zone::Private,
    }
}

/// Orders the addresses of a host for connection attempts (RFC 8305, section 4): in the order of the resolver, address
/// families alternating, so that a broken family does not delay the other.
pub fn attempt_order(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let addresses: Vec<SocketAddr> = addresses.into_iter().collect();
    let preferred_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == preferred_is_v6);
    let (mut preferred, mut other) = (preferred.into_iter(), other.into_iter());
    let mut order = Vec::new();
    loop {
        let pair = [preferred.next(), other.next()];
        if pair.iter().all(Option::is_none) {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_distinguished_from_all_others() {
        for (address, expected) in [
            ("1.1.1.1", Zone::Public),
            ("100.63.0.1", Zone::Public),
            ("172.32.0.1", Zone::Public),
            ("2606:4700::1", Zone::Public),
            ("2001:4860:4860::8888", Zone::Public),
            ("::ffff:1.1.1.1", Zone::Public),
            ("127.0.0.1", Zone::Loopback),
            ("127.9.9.9", Zone::Loopback),
            ("::1", Zone::Loopback),
            ("::ffff:127.0.0.1", Zone::Loopback),
            ("::127.0.0.1", Zone::Private),
            ("64:ff9b::7f00:1", Zone::Private),
            ("2002:7f00:1::", Zone::Private),
            ("0.0.0.0", Zone::Private),
            ("0.1.2.3", Zone::Private),
            ("10.0.0.1", Zone::Private),
            ("172.16.0.1", Zone::Private),
            ("192.168.1.1", Zone::Private),
            ("169.254.169.254", Zone::Private),
            ("100.64.0.1", Zone::Private),
            ("100.127.255.255", Zone::Private),
            ("192.0.0.192", Zone::Private),
            ("198.18.0.1", Zone::Private),
            ("224.0.0.1", Zone::Private),
            ("255.255.255.255", Zone::Private),
            ("::", Zone::Private),
            ("::ffff:169.254.169.254", Zone::Private),
            ("64:ff9b::a9fe:a9fe", Zone::Private),
            ("64:ff9b:1::1", Zone::Private),
            ("2002:a00:1::", Zone::Private),
            ("2001::1", Zone::Private),
            ("2001:db8::1", Zone::Private),
            ("fd00::1", Zone::Private),
            ("fe80::1", Zone::Private),
            ("fec0::1", Zone::Private),
            ("ff02::1", Zone::Private),
        ] {
            assert_eq!(zone(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn address_families_alternate_starting_with_the_preferred_one() {
        let of =
            |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let [a4, b4, c4, a6, b6] = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "[fd00::1]:1", "[fd00::2]:1"];
        let order = |texts: &[&str]| attempt_order(of(texts));
        assert_eq!(order(&[a6, b6, a4, b4]), of(&[a6, a4, b6, b4]));
        assert_eq!(order(&[a4, b4, c4, a6]), of(&[a4, a6, b4, c4]));
        assert_eq!(order(&[a4, b4]), of(&[a4, b4]));
        assert_eq!(order(&[]), of(&[]));
    }
}
