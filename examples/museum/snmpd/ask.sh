# The agent's settings, and the question. Source it.
# shellcheck shell=sh
read -r port _ <<END
$(free_ports)
END
echo 'rocommunity public 127.0.0.1' >snmpd.conf
# Without descriptions of names; nothing is written outside of this directory.
export MIBS= SNMP_PERSISTENT_DIR="$PWD"

# ask: prints sysUpTime, hundredths of a second.
ask() { snmpget -v2c -c public -Oqvt "127.0.0.1:$port" 1.3.6.1.2.1.1.3.0; }
