//! Interfaces of nodes: TAP devices in the nodes' network namespaces, and the setup of those namespaces.
//!
//! A device stays when its descriptor is closed, then without carrier, and goes with its namespace. Therefore a link is down when
//! its emulator has died, and nothing is left of it when its node has ended.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Frames that the kernel keeps until they are read, while the emulator does not run. `bpf/stamp.bpf.c` keeps half as many.
const QUEUE_LEN: i32 = 4_096;

/// A TAP device.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

/// Settings of a device.
#[derive(Clone, Debug)]
pub struct InterfaceOptions<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its MTU.
    pub mtu: u32,
    /// Its addresses, with prefix lengths.
    pub addresses: &'a [(IpAddr, u8)],
}

impl Tap {
    /// Makes a device in the network namespace of this thread, and brings it up without carrier.
    ///
    /// # Errors
    ///
    /// If the kernel has no TAP or refuses.
    pub fn make(options: &InterfaceOptions) -> io::Result<Tap> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = how.open("/dev/net/tun")?;
        let mut request = named(options.name);
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        ioctl(&file, libc::TUNSETIFF as _, &mut request)?;
        let tap = Tap { file };
        tap.set_carrier(false)?;
        // SAFETY: a plain number.
        checked(unsafe { libc::ioctl(tap.file.as_raw_fd(), libc::TUNSETPERSIST as _, 1) })?;
        configure(options)?;
        Ok(tap)
    }

    /// Removes the device from its node.
    ///
    /// # Errors
    ///
    /// If it is gone already.
    pub fn remove(self) -> io::Result<()> {
        // SAFETY: a plain number. The device goes with its last descriptor.
        checked(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST as _, 0) })
    }

    /// Sets the carrier, which the node sees as the state of its link.
    ///
    /// # Errors
    ///
    /// On a kernel before 5.0.
    pub fn set_carrier(&self, is_up: bool) -> io::Result<()> {
        let value = libc::c_int::from(is_up);
        // SAFETY: the kernel reads an int.
        checked(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETCARRIER as _, &value) })
    }

    /// Makes the kernel run the BPF program with descriptor `program` for each frame that the node sends.
    ///
    /// # Errors
    ///
    /// On a kernel before 4.16.
    pub fn set_bpf_filter(&self, program: i32) -> io::Result<()> {
        /// Of <linux/if_tun.h>: _IOR('T', 225, int).
        const TUNSETFILTEREBPF: libc::c_ulong = 0x8004_54e1;
        // SAFETY: the kernel reads an int.
        checked(unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETFILTEREBPF as _, &program) })
    }

    /// Reads the next frame that the node has sent into `buffer`, and returns its length. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.file, buffer) {
            Ok(size) => Ok(Some(size)),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands a frame to the node.
    ///
    /// # Errors
    ///
    /// If the node has set its interface down.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        nix::unistd::write(&self.file, frame)?;
        Ok(())
    }

    /// Its descriptor.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Brings up the loopback interface of this thread's network namespace.
///
/// # Errors
///
/// If the kernel refuses.
pub fn loopback_up() -> io::Result<()> {
    up(&socket(libc::AF_INET)?, "lo")
}

/// Sets one setting of this thread's network namespace, by its dotted name.
///
/// # Errors
///
/// If there is no such setting, or it does not take the value.
pub fn set_sysctl(key: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{}", key.replace('.', "/")), value)
}

fn configure(options: &InterfaceOptions) -> io::Result<()> {
    let control = socket(libc::AF_INET)?;
    let mut request = named(options.name);
    // SAFETY: as wide as six bytes.
    unsafe {
        request.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in request.ifr_ifru.ifru_hwaddr.sa_data.iter_mut().zip(options.mac) {
            *to = from as libc::c_char;
        }
    }
    ioctl(&control, libc::SIOCSIFHWADDR as _, &mut request)?;
    let mut request = named(options.name);
    request.ifr_ifru.ifru_mtu = options.mtu as i32;
    ioctl(&control, libc::SIOCSIFMTU as _, &mut request)?;
    let mut request = named(options.name);
    request.ifr_ifru.ifru_metric = QUEUE_LEN;
    ioctl(&control, libc::SIOCSIFTXQLEN as _, &mut request)?;
    quiet_ipv6(options.name);
    up(&control, options.name)?;
    options.addresses.iter().try_for_each(|(address, length)| match address {
        IpAddr::V4(address) => add_v4(&control, options.name, *address, *length),
        IpAddr::V6(address) => add_v6(options.name, *address, *length),
    })
}

/// Switches off duplicate address detection and router solicitation, which the kernel would do in real time.
fn quiet_ipv6(name: &str) {
    for (key, value) in [("accept_dad", "0"), ("dad_transmits", "0"), ("router_solicitations", "0")]
    {
        // An error means a kernel without IPv6.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{key}"), value);
    }
}

fn add_v4(control: &OwnedFd, name: &str, address: Ipv4Addr, length: u8) -> io::Result<()> {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    for (request_number, address) in
        [(libc::SIOCSIFADDR, u32::from(address)), (libc::SIOCSIFNETMASK, mask)]
    {
        let mut request = named(name);
        let inet = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: address.to_be() },
            sin_zero: [0; 8],
        };
        // SAFETY: both are 16 bytes of plain data.
        request.ifr_ifru.ifru_addr =
            unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet) };
        ioctl(control, request_number as _, &mut request)?;
    }
    Ok(())
}

fn add_v6(name: &str, address: Ipv6Addr, length: u8) -> io::Result<()> {
    let control = socket(libc::AF_INET6)?;
    let c_name = CString::new(name)?;
    // SAFETY: a string of our own.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    let request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: length.into(),
        ifr6_ifindex: index as i32,
    };
    // SAFETY: the kernel reads the structure.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFADDR as _, &request) })
}

fn up(control: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = named(name);
    ioctl(control, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: the kernel has written the flags.
    unsafe { request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short };
    ioctl(control, libc::SIOCSIFFLAGS as _, &mut request)
}

fn socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers in, a descriptor or -1 out.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    checked(fd)?;
    // SAFETY: made here, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a request about the device `name`, whose length the caller has checked.
fn named(name: &str) -> libc::ifreq {
    // SAFETY: plain data, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(fd: &impl AsRawFd, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every request number used here takes an ifreq.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(request)) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
