"""Options of sockets and ioctls that concern time, as `faces` has the system calls: one row each.

A key is a name of the kernel's headers, or a pattern of names in which `*` stands for any text.
`kernel_headers` finds those that the headers of this machine have.
"""

from __future__ import annotations

from framework.faces import NONE, READ, STAMPS, TIMEOUTS, Limit, Row, Virtual, judged, kept, rows

_TCP = Limit("**TCP's own timers**")
_PROTOCOLS = "the timers of other protocols"
_GUEST = "**A virtual machine started inside**"


def other(needs: str, names: str) -> dict[str, Row]:
    """Options of a protocol that not each kernel has."""
    return rows(Limit(_PROTOCOLS, needs=needs), names)


SOCKET_OPTIONS: dict[str, Row] = {
    **judged(TIMEOUTS, SO_RCVTIMEO="SO_RCVTIMEO", SO_SNDTIMEO="SO_SNDTIMEO"),
    **judged(
        STAMPS,
        SO_TIMESTAMP="SO_TIMESTAMP",
        SO_TIMESTAMPNS="SO_TIMESTAMPNS",
        SO_TIMESTAMPING="SO_TIMESTAMPING",
    ),
    # On a 64-bit machine the new names are for the same contents.
    **rows(Virtual(TIMEOUTS.format("SO_RCVTIMEO")), "SO_RCVTIMEO_OLD SO_RCVTIMEO_NEW"),
    **rows(Virtual(TIMEOUTS.format("SO_SNDTIMEO")), "SO_SNDTIMEO_OLD SO_SNDTIMEO_NEW"),
    **rows(
        Virtual(STAMPS.format("SO_TIMESTAMP")),
        "SO_TIMESTAMP_OLD SO_TIMESTAMP_NEW SCM_TIMESTAMP",
    ),
    **rows(
        Virtual(STAMPS.format("SO_TIMESTAMPNS")),
        "SO_TIMESTAMPNS_OLD SO_TIMESTAMPNS_NEW SCM_TIMESTAMPNS",
    ),
    **rows(
        Virtual(STAMPS.format("SO_TIMESTAMPING")),
        "SO_TIMESTAMPING_OLD SO_TIMESTAMPING_NEW SCM_TIMESTAMPING",
    ),
    "TCP_KEEPIDLE": _TCP,
    "TCP_TIMESTAMP": _TCP,
    "TCP_KEEPINTVL": kept(_TCP.words, "TCP_KEEPINTVL"),
    "TCP_LINGER2": kept(_TCP.words, "TCP_LINGER2"),
    "TCP_RTO_MIN_US": kept(_TCP.words, "TCP_RTO_MIN_US"),
    "TCP_RTO_MAX_MS": kept(_TCP.words, "TCP_RTO_MAX_MS"),
    "TCP_DELACK_MAX_US": kept(_TCP.words, "TCP_DELACK_MAX_US"),
    "TCP_TX_DELAY": kept(_TCP.words, "TCP_TX_DELAY"),
    **rows(Limit("TCP_INFO"), "TCP_INFO MPTCP_INFO SCM_TIMESTAMPING_OPT_STATS"),
    "TCP_CC_INFO": kept("TCP_INFO", "TCP_CC_INFO"),
    "TCP_USER_TIMEOUT": Limit("TCP_USER_TIMEOUT"),
    "TCP_DEFER_ACCEPT": kept("TCP_DEFER_ACCEPT", "TCP_DEFER_ACCEPT"),
    "SO_LINGER": Limit("SO_LINGER"),
    "SO_TXTIME": kept("SO_TXTIME", "SO_TXTIME"),
    "SCM_TXTIME": kept("SO_TXTIME", "SO_TXTIME"),
    "SO_BUSY_POLL": kept("SO_BUSY_POLL", "SO_BUSY_POLL"),
    "SO_MAX_PACING_RATE": Limit("SO_MAX_PACING_RATE"),
    **rows(Limit("PACKET_MMAP"), "PACKET_TIMESTAMP TP_STATUS_TS_*"),
    # A stamp by SO_TIMESTAMPING, which is virtual.
    "PACKET_TX_TIMESTAMP": READ,
    "SO_VM_SOCKETS_CONNECT_TIMEOUT*": kept(_PROTOCOLS, "SO_VM_SOCKETS_CONNECT_TIMEOUT*"),
    **other("CONFIG_IP_SCTP", "SCTP_RTOINFO SCTP_DELAYED_* SCTP_GET_PEER_ADDR_INFO"),
    **other("CONFIG_IP_SCTP", "SCTP_PLPMTUD_PROBE_INTERVAL SCTP_AUTOCLOSE"),
    **other("CONFIG_IP_DCCP", "DCCP_SOCKOPT_SERVER_TIMEWAIT DCCP_SOCKOPT_CCID_?X_INFO"),
    **other("CONFIG_AF_RXRPC", "RXRPC_*"),
    **other("CONFIG_TIPC", "TIPC_CONN_TIMEOUT TIPC_SUBSCR_TIMEOUT"),
    **other("CONFIG_CAN_ISOTP", "CAN_ISOTP_*TXTIME*"),
    **other("amateur radio (CONFIG_AX25)", "AX25_IDLE NETROM_IDLE ROSE_DEFER ROSE_IDLE"),
    **other("CONFIG_X25", "X25_*"),
    **other("CONFIG_IP_VS", "IP_VS_SO_?ET_TIMEOUT"),
    **other("CONFIG_RDS", "SO_RDS_MSG_RXPATH_LATENCY RDS_CMSG_RXPATH_LATENCY"),
    # Numbers of messages and flags.
    **rows(
        NONE,
        """
        ICMP_* J1939_IDLE_ADDR MPTCP_INFO_FLAG_* RXKADEXPIRED SCM_TIMESTAMPING_PKTINFO SCTP_NODELAY
        TCPI_OPT_TIMESTAMPS TCP_NODELAY TIPC_NODELAY TLS_INFO_MAX TCP_THIN_LINEAR_TIMEOUTS
        SO_BUSY_POLL_BUDGET SO_PREFER_BUSY_POLL RDS_INFO_* IP_VS_SO_GET_INFO XDP_*_NEED_WAKEUP
        """,
    ),
}


def driver(needs: str, names: str) -> dict[str, Row]:
    """Ioctls of a driver that not each machine has."""
    return rows(Limit("the timeouts of drivers", needs=needs), names)


IOCTLS: dict[str, Row] = {
    **rows(Limit("SIOCGSTAMP"), "SIOCGSTAMP*"),
    **rows(Limit("hardware timestamps", needs="a network card with a clock"), "SIOC?HWTSTAMP"),
    **rows(Limit("/dev/rtc"), "RTC_*"),
    **rows(Limit("dynamic PTP clocks"), "PTP_*"),
    **rows(Limit("PPS", needs="a source of pulses"), "PPS_*"),
    **rows(Limit("watchdogs", needs="a watchdog"), "WDIOC_*"),
    **rows(Limit("input events", needs="an input device"), "EVIOCSCLOCKID EVIOCSFF UI_*_FF_UPLOAD"),
    **rows(Limit("sound", needs="a sound card"), "SNDRV_* __SNDRV_*"),
    **rows(
        Limit("video", needs="a video, graphics or CEC device"),
        "VIDIOC_* VIDEO_* DMX_* FE_* CEC_* DRM_*",
    ),
    **rows(Limit("USB", needs="a USB device"), "USBDEVFS_BULK USBDEVFS_CONTROL USBTMC_*"),
    **rows(Limit("/dev/hpet", needs="CONFIG_HPET, and hardware"), "HPET_* MMTIMER_*"),
    **rows(Limit("FireWire", needs="a FireWire controller"), "FW_CDEV_IOC_GET_CYCLE_TIMER*"),
    **rows(Limit("GPIO", needs="GPIO lines"), "GPIO_V2_*"),
    **rows(Limit("idle times of PPP", needs="CONFIG_PPP"), "PPPIOCGIDLE*"),
    **rows(Limit("floppy", needs="a floppy drive"), "FDGETDRVSTAT FDPOLLDRVSTAT"),
    **rows(Limit("perf"), "PERF_EVENT_IOC_*"),
    **rows(Limit(_GUEST), "KVM_GET_CLOCK KVM_SET_CLOCK KVM_?ET_PIT* KVM_?ET_TSC_KHZ"),
    **rows(Limit(_GUEST, needs="guests of a guest, or of Xen"), "KVM_?ET_NESTED_STATE KVM_XEN_*"),
    **rows(
        Limit("the times of btrfs subvolumes"),
        "BTRFS_IOC_GET_SUBVOL_INFO BTRFS_IOC_SET_RECEIVED_SUBVOL BTRFS_IOC_DEV_REPLACE",
    ),
    "NILFS_IOCTL_GET_SUSTAT": Limit("NILFS segments", needs="CONFIG_NILFS2_FS"),
    "AUTOFS_*": kept("the expiry of automounts", "AUTOFS_*"),
    **driver("CONFIG_ANDROID_BINDER_IPC", "BINDER_FREEZE BINDER_SET_IDLE_TIMEOUT"),
    **driver("a drive for CDs", "CDROM_LAST_WRITTEN CDROM_TIMED_MEDIA_CHANGE"),
    **driver("a floppy drive", "FDGETDRVPRM FDSETDRVPRM"),
    **driver("an accelerator or a bus of that kind", "FSI_* GENWQE_EXECUTE_* HL_IOCTL_*"),
    **driver("Xen", "IOCTL_GNTDEV_DMABUF_*"),
    **driver("a management controller (CONFIG_IPMI_HANDLER)", "IPMICTL_*"),
    **driver("a wireless network card", "IW_*_TIMEOUT IW_*_PERIOD IW_*_LIFETIME IWEVEXPIRED"),
    **driver("an infrared receiver", "LIRC_*"),
    **driver("a parallel port", "LPSETTIMEOUT_* LPTIME PPGETTIME PPSETTIME"),
    **driver("a memory card", "MMC_IOC_*"),
    **driver("CONFIG_BLK_DEV_NBD", "NBD_SET_TIMEOUT"),
    **driver("persistent memory", "ND_IOCTL_ARS_START"),
    **driver("an NVMe disk", "NVME_*"),
    **driver("RapidIO", "RIO_WAIT_FOR_ASYNC"),
    **driver("a SCSI device", "SG_*"),
    **driver("VirtualBox", "VBG_IOCTL_WAIT_FOR_EVENTS"),
    **driver("CONFIG_VHOST_NET", "VHOST_*_BUSYLOOP_TIMEOUT"),
    "TIOC?SERIAL": kept("the timeouts of drivers", "TIOC?SERIAL"),
    **driver("a serial line with RS-485", "TIOC?RS485"),
    **driver("a console with a bell or a keyboard", "KDMKTONE KDKBDREP"),
    # Frequencies, numbers, structures with a word like that of time.
    **rows(
        NONE,
        """
        APM_IOC_SUSPEND ATM_SETSC BINDER_SET_IDLE_PRIORITY BTRFS_IOC_SCRUB* COMEDI_SUBDINFO
        DM_DEV_SUSPEND F2FS_IOC_SEC_TRIM_FILE FDWERRORGET KVM_?ET_FPU KVM_?ET_IRQCHIP
        FUNCTIONFS_ENDPOINT_DESC KVM_KVMCLOCK_CTRL HFI1_IOCTL_* MGSL_IOC?PARAMS NS_*
        USBDEVFS_REAPURBNDELAY* USBDEVFS_*_SUSPEND USB_RAW_IOCTL_* VDUSE_* VHOST_VDPA_*
        """,
    ),
}
