# The shop's certificates, and its customer. Source it.
# shellcheck shell=sh
read -r port _ <<END
$(free_ports)
END
PYTHONPATH=$(dirname "$0"):$PYTHONPATH
export PYTHONPATH

openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=authority -keyout ca.key -out ca.pem 2>/dev/null
# Makes a certificate of 90 days from now on.
issue='openssl req -x509 -CA ca.pem -CAkey ca.key -newkey rsa:2048 -nodes -days 90 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem 2>/dev/null'
sh -c "$issue"

# buy [COMMAND...]: visits the shop, by a command that runs it.
buy() { "$@" curl -sS --cacert ca.pem "https://localhost:$port/" 2>&1; }
