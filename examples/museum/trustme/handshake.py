import ssl

import trustme

ca = trustme.CA()
server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
ca.issue_cert("shop.example").configure_cert(server_context)
client_context = ssl.create_default_context()
ca.configure_trust(client_context)

to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
server = server_context.wrap_bio(to_server, to_client, server_side=True)
client = client_context.wrap_bio(to_client, to_server, server_hostname="shop.example")
try:
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    print("handshake done")
except ssl.SSLError as error:
    print(error)
