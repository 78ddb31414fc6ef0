// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/topology.h"

#include <unistd.h>

#include <cstring>
#include <map>

#include "daemon/comm/mesh/bootstrap_exchange.h"
#include "daemon/comm/symm_mem/segment_directory.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// What a rank tells the others of its place.
struct Card {
  std::int32_t leader = 0;  ///< the lowest rank of its host, as it sees it
  std::int32_t pid = 0;
  char hostname[64] = {};
};

}  // namespace

std::vector<int> Topology::host_numbers() const {
  std::vector<int> numbers;
  for (const RankPlace& place : ranks) numbers.push_back(place.host);
  return numbers;
}

Topology probe_topology(Bootstrap& bootstrap) {
  Card mine{0, static_cast<std::int32_t>(getpid()), {}};
  gethostname(mine.hostname, sizeof(mine.hostname) - 1);
  SegmentPiece page;
  page.segment = Segment::create(1);
  BootstrapExchange exchange(bootstrap);
  SegmentDirectory directory(SharingMode::kAuto);
  const ReachedSegments reached = directory.reach(exchange, page);
  while (reached.memory.segments[static_cast<std::size_t>(mine.leader)] == nullptr) ++mine.leader;
  // Also a barrier: nobody gives its page back while others still look for it.
  std::vector<Card> cards;
  for (const std::string& bytes :
       bootstrap.exchange({reinterpret_cast<const char*>(&mine), sizeof(mine)})) {
    check_internal(bytes.size() == sizeof(Card), "topology: message of {} bytes", bytes.size());
    std::memcpy(&cards.emplace_back(), bytes.data(), sizeof(Card));
  }

  Topology topology;
  std::map<std::int32_t, std::vector<std::size_t>> members;
  for (std::size_t r = 0; r < cards.size(); ++r) members[cards[r].leader].push_back(r);
  topology.ranks.resize(cards.size());
  topology.hosts = static_cast<int>(members.size());
  int host = 0;
  for (const auto& [lowest, ranks] : members) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Card& card = cards[ranks[i]];
      topology.ranks[ranks[i]] = {host, static_cast<int>(i), static_cast<int>(ranks.size()),
                                  card.pid, card.hostname};
    }
    ++host;
  }
  return topology;
}

}  // namespace meshloom::comm
