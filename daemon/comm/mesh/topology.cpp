// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/topology.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "daemon/base/unique_fd.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// What a rank tells the others: where its memory is and what is in it.
struct Beacon {
  std::int64_t pid = 0;
  std::int64_t fd = -1;
  std::array<std::byte, 16> secret{};
  char hostname[64] = {};
};

class SecretMemory {
 public:
  SecretMemory() {
    beacon_.pid = getpid();
    gethostname(beacon_.hostname, sizeof(beacon_.hostname) - 1);
    fd_.reset(memfd_create("meshloom-probe", MFD_CLOEXEC));
    beacon_.fd = fd_.get();
    auto& secret = beacon_.secret;
    if (!fd_ || getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()) ||
        pwrite(fd_.get(), secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
      throw IoError(fmt::format("topology: no memory to probe with: {}", std::strerror(errno)));
  }

  const Beacon& beacon() const { return beacon_; }

 private:
  base::UniqueFd fd_;
  Beacon beacon_;
};

bool shares_memory_with(const Beacon& peer) {
  const std::string path = fmt::format("/proc/{}/fd/{}", peer.pid, peer.fd);
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  std::array<std::byte, 16> seen{};
  const ssize_t bytes = pread(fd.get(), seen.data(), seen.size(), 0);
  return bytes == static_cast<ssize_t>(seen.size()) && seen == peer.secret;
}

template <typename T>
std::string pack(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename T>
T unpack(const std::string& bytes) {
  check_internal(bytes.size() == sizeof(T), "topology: message of {} bytes", bytes.size());
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

}  // namespace

Topology probe_topology(Bootstrap& bootstrap) {
  const SecretMemory memory;
  std::vector<Beacon> beacons;
  for (const std::string& bytes : bootstrap.exchange(pack(memory.beacon())))
    beacons.push_back(unpack<Beacon>(bytes));
  // The lowest rank whose memory is readable stands for the host. Its own answer is itself.
  std::int32_t leader = bootstrap.rank();
  for (int r = 0; r < bootstrap.rank(); ++r) {
    if (!shares_memory_with(beacons[static_cast<std::size_t>(r)])) continue;
    leader = r;
    break;
  }
  // Also a barrier: nobody closes its memory while others still probe.
  const std::vector<std::string> leaders = bootstrap.exchange(pack(leader));

  Topology topology;
  std::map<std::int32_t, std::vector<std::size_t>> members;
  for (std::size_t r = 0; r < leaders.size(); ++r)
    members[unpack<std::int32_t>(leaders[r])].push_back(r);
  topology.ranks.resize(leaders.size());
  topology.hosts = static_cast<int>(members.size());
  int host = 0;
  for (const auto& [lowest, ranks] : members) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      topology.ranks[ranks[i]] = {host, static_cast<int>(i), static_cast<int>(ranks.size()),
                                  static_cast<int>(beacons[ranks[i]].pid),
                                  beacons[ranks[i]].hostname};
    ++host;
  }
  return topology;
}

}  // namespace meshloom::comm
