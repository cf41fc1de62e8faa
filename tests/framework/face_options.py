"""Options of sockets and ioctls that concern time, as `faces` has the system calls: one row each.

A key is a name of the kernel's headers, or a pattern of names in which `*` stands for any text.
`kernel_headers` finds those that the headers of this machine have.
"""

from __future__ import annotations

from framework.faces import NONE, STAMPS, TIMEOUTS, Limit, Row, Virtual, judged, rows

_TCP = Limit("**TCP's own timers**")
_PROTOCOLS = Limit("the timers of other protocols")
_DRIVERS = Limit("the timeouts of drivers")
_GUEST = Limit("**A virtual machine started inside**")

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
    **rows(
        _TCP,
        """
        TCP_KEEPIDLE TCP_KEEPINTVL TCP_LINGER2 TCP_THIN_LINEAR_TIMEOUTS TCP_RTO_MIN_US
        TCP_RTO_MAX_MS TCP_DELACK_MAX_US TCP_TIMESTAMP TCP_TX_DELAY
        """,
    ),
    **rows(Limit("TCP_INFO"), "TCP_INFO TCP_CC_INFO MPTCP_INFO SCM_TIMESTAMPING_OPT_STATS"),
    "TCP_USER_TIMEOUT": Limit("TCP_USER_TIMEOUT"),
    "TCP_DEFER_ACCEPT": Limit("TCP_DEFER_ACCEPT"),
    "SO_LINGER": Limit("SO_LINGER"),
    **rows(Limit("SO_TXTIME"), "SO_TXTIME SCM_TXTIME"),
    **rows(Limit("SO_BUSY_POLL"), "SO_BUSY_POLL SO_BUSY_POLL_BUDGET SO_PREFER_BUSY_POLL"),
    "SO_MAX_PACING_RATE": Limit("SO_MAX_PACING_RATE"),
    **rows(Limit("PACKET_MMAP"), "PACKET_TIMESTAMP PACKET_TX_TIMESTAMP TP_STATUS_TS_*"),
    **rows(
        _PROTOCOLS,
        """
        SCTP_RTOINFO SCTP_DELAYED_* SCTP_GET_PEER_ADDR_INFO SCTP_PLPMTUD_PROBE_INTERVAL
        SCTP_AUTOCLOSE DCCP_SOCKOPT_SERVER_TIMEWAIT DCCP_SOCKOPT_CCID_?X_INFO
        SO_VM_SOCKETS_CONNECT_TIMEOUT* RXRPC_* TIPC_CONN_TIMEOUT TIPC_SUBSCR_TIMEOUT
        CAN_ISOTP_*TXTIME* AX25_IDLE NETROM_IDLE ROSE_DEFER ROSE_IDLE X25_*
        """,
    ),
    # Numbers of messages and flags.
    **rows(
        NONE,
        """
        ICMP_* J1939_IDLE_ADDR MPTCP_INFO_FLAG_* RXKADEXPIRED SCM_TIMESTAMPING_PKTINFO SCTP_NODELAY
        TCPI_OPT_TIMESTAMPS TCP_NODELAY TIPC_NODELAY TLS_INFO_MAX
        """,
    ),
}

IOCTLS: dict[str, Row] = {
    **rows(Limit("SIOCGSTAMP"), "SIOCGSTAMP*"),
    **rows(Limit("hardware timestamps"), "SIOC?HWTSTAMP"),
    **rows(Limit("/dev/rtc"), "RTC_*"),
    **rows(Limit("dynamic PTP clocks"), "PTP_*"),
    **rows(Limit("PPS"), "PPS_*"),
    **rows(Limit("watchdogs"), "WDIOC_*"),
    **rows(Limit("input events"), "EVIOCSCLOCKID EVIOCSFF UI_*_FF_UPLOAD"),
    **rows(Limit("sound"), "SNDRV_* __SNDRV_*"),
    **rows(Limit("video"), "VIDIOC_* VIDEO_* DMX_* FE_* CEC_* DRM_*"),
    **rows(Limit("USB"), "USBDEVFS_BULK USBDEVFS_CONTROL USBTMC_*"),
    **rows(Limit("/dev/hpet"), "HPET_* MMTIMER_*"),
    **rows(Limit("FireWire"), "FW_CDEV_IOC_GET_CYCLE_TIMER*"),
    **rows(Limit("GPIO"), "GPIO_V2_*"),
    **rows(Limit("idle times of PPP"), "PPPIOCGIDLE*"),
    **rows(Limit("floppy"), "FDGETDRVSTAT FDPOLLDRVSTAT"),
    **rows(Limit("perf"), "PERF_EVENT_IOC_*"),
    **rows(
        _GUEST,
        """
        KVM_GET_CLOCK KVM_SET_CLOCK KVM_KVMCLOCK_CTRL KVM_?ET_PIT* KVM_?ET_NESTED_STATE
        KVM_?ET_TSC_KHZ KVM_XEN_*
        """,
    ),
    **rows(
        Limit("the times of btrfs subvolumes"),
        "BTRFS_IOC_GET_SUBVOL_INFO BTRFS_IOC_SET_RECEIVED_SUBVOL BTRFS_IOC_DEV_REPLACE",
    ),
    "NILFS_IOCTL_GET_SUSTAT": Limit("NILFS segments"),
    **rows(Limit("the expiry of automounts"), "AUTOFS_*"),
    **rows(
        _DRIVERS,
        """
        BINDER_FREEZE BINDER_SET_IDLE_TIMEOUT CDROM_LAST_WRITTEN CDROM_TIMED_MEDIA_CHANGE
        FDGETDRVPRM FDSETDRVPRM FSI_* GENWQE_EXECUTE_* HL_IOCTL_* IOCTL_GNTDEV_DMABUF_* IPMICTL_*
        IW_*_TIMEOUT IW_*_PERIOD IW_*_LIFETIME IWEVEXPIRED LIRC_* LPSETTIMEOUT_* LPTIME MMC_IOC_*
        NBD_SET_TIMEOUT ND_IOCTL_ARS_START NVME_* PPGETTIME PPSETTIME RIO_WAIT_FOR_ASYNC SG_*
        VBG_IOCTL_WAIT_FOR_EVENTS VHOST_*_BUSYLOOP_TIMEOUT
        """,
    ),
    # Frequencies, numbers, structures with a word like that of time.
    **rows(
        NONE,
        """
        APM_IOC_SUSPEND ATM_SETSC BINDER_SET_IDLE_PRIORITY BTRFS_IOC_SCRUB* COMEDI_SUBDINFO
        DM_DEV_SUSPEND F2FS_IOC_SEC_TRIM_FILE FDWERRORGET KVM_?ET_FPU KVM_?ET_IRQCHIP
        FUNCTIONFS_ENDPOINT_DESC HFI1_IOCTL_* MGSL_IOC?PARAMS NS_* USBDEVFS_REAPURBNDELAY*
        USBDEVFS_*_SUSPEND USB_RAW_IOCTL_* VDUSE_* VHOST_VDPA_*
        """,
    ),
}
