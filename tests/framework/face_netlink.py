"""Attributes of netlink that concern time, as `faces` has the system calls: one row each.

A key is a name of the kernel's headers, or a pattern of names in which `*` stands for any text.
"""

from __future__ import annotations

from framework.faces import NONE, Limit, Row, rows

_NETLINK = "**Netlink**: it shows the host's time"


def of(needs: str, names: str) -> dict[str, Row]:
    """Attributes of a subsystem that not each machine has."""
    return rows(Limit(_NETLINK, needs=needs), names)


NETLINK: dict[str, Row] = {
    # Numbers, flags, and words like those of time.
    **rows(
        NONE,
        """
        IFLA_NET_NS_* IFLA_BOND_NS_IP6_TARGET IFLA_BR_MCAST_LAST_MEMBER_CNT
        BRIDGE_VLANDB_GOPTS_MCAST_LAST_MEMBER_CNT CTA_TIMEOUT_NAME CTA_TIMEOUT_USE IOAM6_ATTR_NS_*
        NFTA_LAST_PAD NFTA_CT_TIMEOUT_L?PROTO *_UNSPEC *_PAD XFRMA_SEC_CTX TIPC_NLA_*
        ETHTOOL_A_CABLE_* ETHTOOL_A_STATS_* ETHTOOL_A_PHC_VCLOCKS_* TCP_NLA_PACING_RATE
        MACSEC_RXSC_STATS_ATTR_IN_PKTS_DELAYED BATADV_ATTR_TT_LAST_TTVN RDMA_NLDEV_*
        NL80211_ATTR_AIRTIME_WEIGHT NL80211_ATTR_TIMED_OUT DEVLINK_ATTR_FLASH_UPDATE_STATUS_TIMEOUT
        """,
    ),
    "NDA_CACHEINFO": Limit("ages of neighbours"),
    "RTA_CACHEINFO": Limit("ages of routes"),
    "IFA_CACHEINFO": Limit("lifetimes of addresses"),
    "CTA_TIMEOUT": Limit("conntrack"),
    **rows(
        Limit(_NETLINK),
        """
        NFTA_SET_ELEM_EXPIRATION NFULA_TIMESTAMP IFLA_BR_* MDBA_* TCA_* XFRMA_LTIME_VAL
        """,
    ),
    # Read by another attribute of the same subsystem, or by the setting in /proc/sys.
    **rows(
        Limit(_NETLINK),
        """
        RTA_EXPIRES RTAX_RTO_MIN NDTA_* NDTPA_* IFLA_BRPORT_* IFLA_INET6_CACHEINFO
        PREFIX_CACHEINFO CTA_* NFTA_* NFULA_CFG_TIMEOUT NFQA_TIMESTAMP NFCTH_* BRIDGE_*
        XFRMA_*THRESH TCP_NLA_TIMEOUT_REHASH
        """,
    ),
    **of("a connection with another machine", "TCP_METRICS_ATTR_*"),
    **of("CONFIG_BONDING and a bond", "IFLA_BOND_*"),
    **of("a bridge with CFM or MRP", "IFLA_BRIDGE_CFM_* IFLA_BRIDGE_MRP_*"),
    **of("CONFIG_CAN", "IFLA_CAN_*"),
    **of("CONFIG_HSR", "IFLA_HSR_* HSR_A_*"),
    **of("a tunnel or device with such a time", "IFLA_*"),
    **of("CONFIG_IP_SET, and ipset", "IPSET_ATTR_*"),
    **of("CONFIG_IP_VS", "IPVS_*"),
    **of("groups of next hops that are resilient", "NHA_*"),
    **of("CONFIG_BATMAN_ADV", "BATADV_ATTR_*"),
    **of("a network card with a devlink instance", "DEVLINK_ATTR_*"),
    **of("a network card with such a feature", "ETHTOOL_A_*"),
    **of("CONFIG_L2TP", "L2TP_ATTR_*"),
    **of("a daemon for subnets of InfiniBand", "LS_NLA_*"),
    **of("a daemon for paths of MPTCP", "MPTCP_ATTR_*"),
    **of("CONFIG_BLK_DEV_NBD", "NBD_ATTR_*"),
    **of("CONFIG_NET_DROP_MONITOR", "NET_DM_ATTR_*"),
    **of("a wireless network card", "NL80211_*"),
    **of("CONFIG_OPENVSWITCH", "OVS_*"),
    **of("CONFIG_PSAMPLE", "PSAMPLE_ATTR_*"),
    **of("CONFIG_WIREGUARD", "WGPEER_A_*"),
}
