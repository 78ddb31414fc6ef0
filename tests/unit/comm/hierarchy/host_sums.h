// SPDX-License-Identifier: Apache-2.0
// What reductions over several hosts have to give, to the bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm::testing {

/// What every rank gives: numbers of very different sizes, so that another order gives other bits.
template <typename T>
std::vector<T> drawn(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::normal_distribution<float> normal(0.0f, std::pow(10.0f, static_cast<float>(rank % 4)));
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

/// The contributions of every host in rank order, and the hosts in the order of their lowest ranks.
template <typename T>
std::vector<T> summed_by_hosts(const std::vector<int>& hosts, std::size_t n, ReduceOp op) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<int> order;
  for (const int host : hosts)
    if (std::find(order.begin(), order.end(), host) == order.end()) order.push_back(host);
  std::vector<std::vector<T>> all;
  for (std::size_t r = 0; r < hosts.size(); ++r) all.push_back(drawn<T>(static_cast<int>(r), n));
  std::vector<T> sums(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::optional<A> sum;
    for (const int host : order) {
      std::optional<A> partial;
      for (std::size_t r = 0; r < hosts.size(); ++r)
        if (hosts[r] == host)
          partial = partial ? *partial + static_cast<A>(all[r][i]) : static_cast<A>(all[r][i]);
      sum = sum ? *sum + *partial : *partial;
    }
    sums[i] = static_cast<T>(op == ReduceOp::kAvg ? *sum / static_cast<A>(hosts.size()) : *sum);
  }
  return sums;
}

/// What sums and averages of drawn() have to be, for one dtype and size.
template <typename T>
class ExpectedSums {
 public:
  ExpectedSums(const std::vector<int>& hosts, std::size_t n) : n_(n) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg})
      expected_.emplace_back(op, summed_by_hosts<T>(hosts, n, op));
  }

  void compare(ProcessGroup& group) const {
    for (const auto& [op, expected] : expected_) {
      std::vector<T> whole = drawn<T>(group.rank(), n_), input = whole, part(n_);
      const std::vector<TensorView> inputs(static_cast<std::size_t>(group.size()), view_of(input));
      group.all_reduce(view_of(whole), op)->wait_host();
      group.reduce_scatter(view_of(part), inputs, op)->wait_host();
      EXPECT_TRUE(same_bits(whole, expected)) << "all_reduce of " << n_;
      EXPECT_TRUE(same_bits(part, expected)) << "reduce_scatter of " << n_;
    }
  }

 private:
  static bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }

  std::size_t n_;
  std::vector<std::pair<ReduceOp, std::vector<T>>> expected_;
};

}  // namespace meshloom::comm::testing
