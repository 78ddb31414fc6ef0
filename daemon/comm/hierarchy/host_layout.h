// SPDX-License-Identifier: Apache-2.0
// HostLayout: which ranks of a group share a host, and which of them data passes through.
#pragma once

#include <string>
#include <vector>

namespace meshloom::comm {

/// HostLayout is a value, the same on all ranks of the group but for whose it is. Hosts are
/// numbered from 0 by their lowest rank, whatever numbers they have elsewhere.
class HostLayout {
 public:
  /// Ranks r and s share a host where hosts[r] == hosts[s]. `rank` is the one that asks.
  HostLayout(const std::vector<int>& hosts, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  int own_host() const { return host_of(rank_); }
  bool is_near(int rank) const { return host_of(rank) == own_host(); }

  /// Returns the ranks of a host, in rank order.
  const std::vector<int>& members(int host) const {
    return members_[static_cast<std::size_t>(host)];
  }
  const std::vector<int>& own_members() const { return members(own_host()); }
  /// Returns the place of a rank among those of its host.
  int local_rank(int rank) const { return local_rank_[static_cast<std::size_t>(rank)]; }
  int local_rank() const { return local_rank(rank_); }
  int local_size() const { return static_cast<int>(own_members().size()); }
  /// Returns the lowest rank of a host.
  int leader(int host) const { return members(host).front(); }
  bool leads() const { return leader(own_host()) == rank_; }
  /// Returns all other hosts, from the next one on: if every host begins with its successor, not
  /// all send to host 0 first.
  std::vector<int> other_hosts() const;
  /// Returns the ranks of all other hosts, in rank order.
  std::vector<int> far_ranks() const;
  /// Returns how many ranks are on the host that has the fewest.
  int smallest_host() const { return smallest_host_; }

  /// Returns the member of `host` through which data passes between that host and a rank of another
  /// one. The ranks of other hosts are dealt out among the members in turn.
  int carrier(int host, int rank) const;
  /// Returns, by place on this host, the ranks whose data that member handles, itself first, then
  /// those of other hosts in rank order.
  const std::vector<std::vector<int>>& handled() const { return handled_; }
  const std::vector<int>& handled_here() const {
    return handled_[static_cast<std::size_t>(local_rank())];
  }
  /// Returns the most ranks that a member of this host handles.
  int rounds() const { return rounds_; }

 private:
  int rank_;
  std::vector<int> host_of_, local_rank_;  ///< by rank
  std::vector<std::vector<int>> members_;  ///< by host
  std::vector<std::vector<int>> handled_;
  int smallest_host_ = 0;
  int rounds_ = 0;
};

/// Returns "0,0,1,1": the host of each rank, as HostLayout numbers them.
std::string to_string(const HostLayout&);

}  // namespace meshloom::comm
