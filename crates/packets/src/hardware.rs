//! Hardware timestamps: whether a device has them.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::error::PacketsError;
use crate::namespace::OuterDevice;

/// From <linux/sockios.h> and <linux/ethtool.h>.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// From <linux/net_tstamp.h>.
const TX_HARDWARE: u32 = 1;
const RX_HARDWARE: u32 = 1 << 2;
const RAW_HARDWARE: u32 = 1 << 6;

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Default)]
struct TimestampInfo {
    command: u32,
    timestamping: u32,
    clock: i32,
    transmit: u32,
    reserved: [u32; 3],
    filters: u32,
    more_reserved: [u32; 3],
}

impl OuterDevice {
    /// Checks that the device can stamp packets both ways.
    ///
    /// # Errors
    ///
    /// [`PacketsError::NoHardwareStamps`], with the missing capabilities; also for a device that has all of them, because reading
    /// its timestamps is not supported yet.
    pub fn check_hardware_timestamps(&self) -> Result<(), PacketsError> {
        let refused = |why: &str| {
            Err(PacketsError::NoHardwareStamps { device: self.name.clone(), why: why.into() })
        };
        let timestamping = match self.timestamping() {
            Ok(timestamping) => timestamping,
            Err(error) => return refused(&format!("its driver does not tell: {error}")),
        };
        match lacking(timestamping) {
            [] => refused("it has them, but reading them is not implemented"),
            missing => refused(&format!("it lacks {}", missing.join(" and "))),
        }
    }

    /// Returns the SOF_TIMESTAMPING flags that the driver reports.
    fn timestamping(&self) -> io::Result<u32> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        let mut info = TimestampInfo { command: ETHTOOL_GET_TS_INFO, ..Default::default() };
        // SAFETY: the struct has numbers and pointers only, for which zeros are valid values.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in
            request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(self.name.bytes())
        {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut info).cast();
        // SAFETY: the request has the form that the call expects, and lives until the call returns.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        nix::errno::Errno::result(done)?;
        Ok(info.timestamping)
    }
}

/// Returns the capabilities missing in `timestamping`, of those needed.
fn lacking(timestamping: u32) -> &'static [&'static str] {
    const ALL: [&str; 2] = ["hardware transmission timestamps", "hardware reception timestamps"];
    let transmits = timestamping & TX_HARDWARE != 0 && timestamping & RAW_HARDWARE != 0;
    let receives = timestamping & RX_HARDWARE != 0 && timestamping & RAW_HARDWARE != 0;
    match (transmits, receives) {
        (true, true) => &[],
        (false, true) => &ALL[..1],
        (true, false) => &ALL[1..],
        (false, false) => &ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_timestamps_are_not_enough() {
        assert_eq!(lacking(0x1a).len(), 2);
        assert_eq!(lacking(TX_HARDWARE | RAW_HARDWARE), ["hardware reception timestamps"]);
        assert!(lacking(TX_HARDWARE | RX_HARDWARE | RAW_HARDWARE).is_empty());
    }

    #[test]
    fn the_loopback_device_has_none() {
        let lo = OuterDevice { name: "lo".into(), number: 1 };
        let refusal = lo.check_hardware_timestamps().unwrap_err().to_string();
        assert!(refusal.starts_with("--hardware: lo has no hardware timestamps (it"), "{refusal}");
    }
}
