# The client's half of `run` and `faketime`. Source it; `step_clock` changes the server's clock.
# shellcheck shell=sh
export ETCDCTL_API=3
read -r client peer <<END
$(free_ports)
END
export ETCDCTL_ENDPOINTS="http://127.0.0.1:$client"

use_lease() {
    until etcdctl endpoint health >/dev/null 2>&1; do sleep 0.2; done
    lease=$(etcdctl lease grant 6 | cut -d ' ' -f 2)
    etcdctl put --lease="$lease" leader ann >/dev/null
    step_clock
    sleep 15
    if [ -n "$(etcdctl get leader)" ]; then
        echo "the key is there, $(etcdctl lease timetolive "$lease" | grep -o 'remaining(.*)')"
    else
        echo "the key is gone"
    fi
}
