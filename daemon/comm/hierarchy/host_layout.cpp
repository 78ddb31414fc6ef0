// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/host_layout.h"

#include <algorithm>
#include <map>

#include "kernels/base/error.h"

namespace meshloom::comm {

HostLayout::HostLayout(const std::vector<int>& hosts, int rank) : rank_(rank) {
  check_internal(rank >= 0 && rank < static_cast<int>(hosts.size()), "rank {} of {} in no host",
                 rank, hosts.size());
  std::map<int, int> numbers;
  for (const int host : hosts) {
    const int number = numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second;
    if (number == static_cast<int>(members_.size())) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<std::size_t>(number)];
    local_rank_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(host_of_.size()));
    host_of_.push_back(number);
  }
  smallest_host_ = size();
  for (const std::vector<int>& members : members_)
    smallest_host_ = std::min(smallest_host_, static_cast<int>(members.size()));
  for (const int member : own_members()) handled_.push_back({member});
  for (int other = 0; other < size(); ++other)
    if (!is_near(other))
      handled_[static_cast<std::size_t>(local_rank(carrier(own_host(), other)))].push_back(other);
  for (const std::vector<int>& ranks : handled_)
    rounds_ = std::max(rounds_, static_cast<int>(ranks.size()));
}

int HostLayout::carrier(int host, int rank) const {
  // Ranks with one place on their hosts would else meet at one member where hosts differ in size.
  const std::vector<int>& all = members(host);
  const int before = static_cast<int>(std::count_if(host_of_.begin(), host_of_.begin() + rank,
                                                    [&](int other) { return other != host; }));
  return all[static_cast<std::size_t>(before) % all.size()];
}

std::vector<int> HostLayout::other_hosts() const {
  std::vector<int> others;
  for (int step = 1; step < hosts(); ++step) others.push_back((own_host() + step) % hosts());
  return others;
}

std::vector<int> HostLayout::far_ranks() const {
  std::vector<int> far;
  for (int other = 0; other < size(); ++other)
    if (!is_near(other)) far.push_back(other);
  return far;
}

std::string to_string(const HostLayout& layout) {
  std::vector<int> hosts;
  for (int r = 0; r < layout.size(); ++r) hosts.push_back(layout.host_of(r));
  return fmt::format("{}", fmt::join(hosts, ","));
}

}  // namespace meshloom::comm
