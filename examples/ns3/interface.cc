// Apart from the rest: the kernel's header and ns-3 use the same names.

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int OpenInterface(const std::string& name) {
  int descriptor = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
  packet_mreq all{};
  all.mr_ifindex = address.sll_ifindex;
  all.mr_type = PACKET_MR_PROMISC;
  int yes = 1;
  bool good = descriptor >= 0 && address.sll_ifindex > 0 &&
              bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
              setsockopt(descriptor, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) == 0 &&
              setsockopt(descriptor, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) == 0;
  if (!good) {
    std::perror(name.c_str());
    std::exit(1);
  }
  return descriptor;
}
