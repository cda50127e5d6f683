//! A TUN device: what the kernel sends there comes out of a file as IP packets, and what is written arrives.

use std::io::Error;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::namespace::Refused;

/// `TUNSETIFF` of linux/if_tun.h: `_IOW('T', 202, int)`. It takes an `ifreq` all the same.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
/// `IFF_TUN`: IP packets, not Ethernet frames. `IFF_NO_PI`: without four bytes before each.
const FLAGS: i16 = 0x0001 | 0x1000;

/// `struct ifreq` of linux/if.h, as far as `TUNSETIFF` reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// Makes the device `name` in the network namespace of this thread. It is there as long as the file.
pub fn open(name: &str) -> Result<OwnedFd, Refused> {
    let refused = |what: &str, error: Errno| {
        use Errno as E;
        let known = [E::PERM, E::ACCESS, E::NOENT, E::NODEV, E::NXIO, E::OPNOTSUPP];
        assert!(known.contains(&error), "{what}: {}", Error::from(error));
        Refused(format!("{what}: {}", Error::from(error)))
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file =
        rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| refused("/dev/net/tun", error))?;
    let mut request = InterfaceRequest { name: [0; 16], flags: FLAGS, rest: [0; 22] };
    assert!(name.len() < request.name.len(), "{name} is too long for a device");
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    attach(&file, &mut request).map_err(|error| refused("TUNSETIFF", error))?;
    Ok(file)
}

#[expect(unsafe_code, reason = "there is no device without this one ioctl")]
fn attach(file: &OwnedFd, request: &mut InterfaceRequest) -> rustix::io::Result<()> {
    // SAFETY: TUNSETIFF reads an `ifreq` and writes the name it chose back into it. `InterfaceRequest` has the layout and the
    // 40 bytes of `ifreq`, any bytes are a valid one, and it is borrowed mutably until the call returns.
    unsafe { ioctl(file, Updater::<TUNSETIFF, InterfaceRequest>::new(request)) }
}
