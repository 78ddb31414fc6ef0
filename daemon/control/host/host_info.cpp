// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/host_info.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

#include "kernels/base/integer_math.h"

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

}  // namespace

int cores_of_quota(const std::string& cpu_max) {
  long long quota = 0;
  long long period = 0;
  std::istringstream text(cpu_max);
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(divide_up(quota, period));
}

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
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string cpu_max;
  const int quota = std::getline(quota_file, cpu_max) ? cores_of_quota(cpu_max) : 0;
  if (quota > 0) threads = std::min(threads, quota / std::max(local, 1));
  return std::max(threads, 1);
}

std::string host_address(const std::string& configured) {
  if (!configured.empty()) return configured;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* item = list.get(); item; item = item->ifa_next) {
    const bool usable = (item->ifa_flags & IFF_UP) != 0 && (item->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || !item->ifa_addr || item->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(item->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text)) return text;
  }
  return "127.0.0.1";
}

}  // namespace meshloom::control
