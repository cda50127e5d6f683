//! Hosts: their numbers, names and addresses.
//!
//! Plain hosts are numbered from 0; hosts with an oddity follow in the order of [`Oddity::ALL`]. Names and addresses
//! carry the number, so that nothing has to be looked up and a million hosts cost no memory.

use std::net::Ipv4Addr;

use super::Web;
use super::plan::{Addressing, Oddity};
use super::text::{PATH_WORDS, push_number};

/// Hosts per 127.x.0.0/16: 250 addresses in each of 250 networks, leaving out .0 and the last ones.
const HOSTS_PER_BLOCK: u32 = 250 * 250;
/// First second octet. Away from 127.0.0.1, which belongs to everyone.
const FIRST_BLOCK: u32 = 77;

const SUBDOMAINS: [&str; 4] = ["www", "news", "shop", "wiki"];

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Ordinary pages.
    Plain,
    /// One oddity; the number tells apart several hosts of the same.
    Odd(Oddity, u32),
}

impl Web {
    /// How many hosts there are, odd ones and those that are down included.
    pub fn host_count(&self) -> u32 {
        self.plan.hosts + self.odd.len() as u32
    }

    /// What host `number` is.
    pub fn host_kind(&self, number: u32) -> HostKind {
        match number.checked_sub(self.plan.hosts) {
            None => HostKind::Plain,
            Some(at) => {
                let (oddity, nth) = self.odd[at as usize];
                HostKind::Odd(oddity, nth)
            }
        }
    }

    /// The first host with `oddity`, if the plan has one.
    pub fn odd_host(&self, oddity: Oddity) -> Option<u32> {
        let at = self.odd.iter().position(|(candidate, _)| *candidate == oddity)?;
        Some(self.plan.hosts + at as u32)
    }

    /// Whether connections to host `number` are refused.
    pub fn is_down(&self, number: u32) -> bool {
        matches!(self.host_kind(number), HostKind::Odd(Oddity::Down, _))
    }

    /// The loopback address of host `number`.
    pub fn address(&self, number: u32) -> Ipv4Addr {
        let (block, within) = (FIRST_BLOCK + number / HOSTS_PER_BLOCK, number % HOSTS_PER_BLOCK);
        Ipv4Addr::new(127, block as u8, (within / 250) as u8, (within % 250 + 1) as u8)
    }

    /// The host as it stands in a URL, without port, lower case.
    pub fn host_name(&self, number: u32) -> String {
        let mut out = Vec::with_capacity(32);
        self.push_host(&mut out, number);
        String::from_utf8(out).expect("host names are ASCII")
    }

    /// The number of the host called `name` (without port, any case).
    pub fn host_number(&self, name: &str) -> Option<u32> {
        let number = match self.plan.addressing {
            Addressing::Addresses => {
                let [127, block, network, last] = name.parse::<Ipv4Addr>().ok()?.octets() else { return None };
                let block = u32::from(block).checked_sub(FIRST_BLOCK)?;
                block * HOSTS_PER_BLOCK + u32::from(network) * 250 + u32::from(last).checked_sub(1)?
            }
            Addressing::Names => self.number_from_name(&name.to_ascii_lowercase())?,
        };
        // Only the one right spelling counts; this also catches addresses between the blocks.
        (number < self.host_count() && self.host_name(number).eq_ignore_ascii_case(name)).then_some(number)
    }

    fn number_from_name(&self, name: &str) -> Option<u32> {
        let (first, rest) = name.split_once('.')?;
        let site = rest.strip_suffix(".test")?;
        let digits = site.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
        let group: u32 = digits.parse().ok()?;
        if let Some(subdomain) = SUBDOMAINS.iter().position(|subdomain| *subdomain == first) {
            return group.checked_mul(4)?.checked_add(subdomain as u32);
        }
        let at = self.odd.iter().position(|(oddity, nth)| oddity.name() == first && *nth == group)?;
        Some(self.plan.hosts + at as u32)
    }

    /// Appends the host without port.
    pub(super) fn push_host(&self, out: &mut Vec<u8>, number: u32) {
        match self.plan.addressing {
            Addressing::Addresses => {
                for (position, octet) in self.address(number).octets().into_iter().enumerate() {
                    if position > 0 {
                        out.push(b'.');
                    }
                    push_number(out, u64::from(octet));
                }
            }
            Addressing::Names => match self.host_kind(number) {
                // Four hosts share a registrable domain.
                HostKind::Plain => {
                    let group = number / 4;
                    out.extend_from_slice(SUBDOMAINS[number as usize % 4].as_bytes());
                    out.push(b'.');
                    out.extend_from_slice(PATH_WORDS[group as usize % PATH_WORDS.len()].as_bytes());
                    push_number(out, u64::from(group));
                    out.extend_from_slice(b".test");
                }
                HostKind::Odd(oddity, nth) => {
                    out.extend_from_slice(oddity.name().as_bytes());
                    out.extend_from_slice(b".odd");
                    push_number(out, u64::from(nth));
                    out.extend_from_slice(b".test");
                }
            },
        }
    }

    /// Appends `http://host[:port]`.
    pub(super) fn push_origin(&self, out: &mut Vec<u8>, number: u32) {
        out.extend_from_slice(b"http://");
        self.push_authority(out, number);
    }

    /// Appends `host[:port]`.
    pub(super) fn push_authority(&self, out: &mut Vec<u8>, number: u32) {
        self.push_host(out, number);
        if self.plan.port != 80 {
            out.push(b':');
            push_number(out, u64::from(self.plan.port));
        }
    }

    /// The canonical URL of `path` (with query) on host `number`.
    pub fn url(&self, number: u32, path: &str) -> String {
        let mut out = Vec::with_capacity(40 + path.len());
        self.push_origin(&mut out, number);
        out.extend_from_slice(path.as_bytes());
        String::from_utf8(out).expect("host names are ASCII")
    }
}
