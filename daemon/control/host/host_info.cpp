// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/host_info.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>

#include "daemon/base/usable_cores.h"

namespace meshloom::control {
namespace {

/// One character per core: '1' if this process may run on it.
std::string affinity_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return "1";
  std::string mask;
  for (int core = 0; core < CPU_SETSIZE; ++core) mask += CPU_ISSET(core, &set) ? '1' : '0';
  mask.erase(mask.find_last_of('1') + 1);
  return mask;
}

bool share_a_core(const std::string& a, const std::string& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] == '1' && b[i] == '1') return true;
  return false;
}

bool is_address(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1;
}

/// Whether `address` is in a subnet such as "10.0.0.0/24".
bool is_in_subnet(const std::string& address, const std::string& subnet) {
  const std::size_t slash = subnet.find('/');
  in_addr one{}, net{};
  int bits = 0;
  const char* end = subnet.data() + subnet.size();
  const auto [rest, error] = std::from_chars(subnet.data() + slash + 1, end, bits);
  if (error != std::errc() || rest != end || bits < 0 || bits > 32) return false;
  if (::inet_pton(AF_INET, subnet.substr(0, slash).c_str(), &net) != 1) return false;
  if (::inet_pton(AF_INET, address.c_str(), &one) != 1) return false;
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return ((ntohl(one.s_addr) ^ ntohl(net.s_addr)) & mask) == 0;
}

/// The first address of the first entry that this host has one of.
std::optional<std::string> address_of_interface(const std::string& entries,
                                                const std::vector<InterfaceAddress>& addresses) {
  std::istringstream list(entries);
  std::string entry;
  while (std::getline(list, entry, ',')) {
    const bool is_subnet = entry.find('/') != std::string::npos;
    for (const InterfaceAddress& item : addresses)
      if (is_subnet ? is_in_subnet(item.address, entry) : item.interface == entry)
        return item.address;
  }
  return std::nullopt;
}

}  // namespace

int threads_per_rank(comm::Bootstrap& bootstrap, const comm::Topology& topology) {
  const std::string mask = affinity_mask();
  const auto masks = bootstrap.exchange(mask);
  const auto mine = static_cast<std::size_t>(bootstrap.rank());
  int sharing = 0;
  int local = 0;
  for (std::size_t rank = 0; rank < masks.size(); ++rank) {
    if (topology.ranks[rank].host != topology.ranks[mine].host) continue;
    ++local;
    if (share_a_core(mask, masks[rank])) ++sharing;
  }
  const auto cores = static_cast<int>(std::count(mask.begin(), mask.end(), '1'));
  int threads = cores / std::max(sharing, 1);
  const int quota = base::core_quota();
  if (quota > 0) threads = std::min(threads, quota / std::max(local, 1));
  return std::max(threads, 1);
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* item = list.get(); item; item = item->ifa_next) {
    if ((item->ifa_flags & IFF_UP) == 0 || !item->ifa_addr || item->ifa_addr->sa_family != AF_INET)
      continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(item->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text))
      addresses.push_back({item->ifa_name, text, (item->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return addresses;
}

RankAddress rank_address(const std::string& configured, const std::string& mpi_interface,
                         const std::vector<InterfaceAddress>& addresses) {
  const std::optional<std::string> of_interface = address_of_interface(mpi_interface, addresses);
  if (!configured.empty())
    return {configured, is_address(configured) ? configured : of_interface.value_or("0.0.0.0")};
  if (of_interface) return {*of_interface, *of_interface};
  for (const InterfaceAddress& item : addresses)
    if (!item.is_loopback) return {item.address, item.address};
  return {"127.0.0.1", "127.0.0.1"};
}

}  // namespace meshloom::control
