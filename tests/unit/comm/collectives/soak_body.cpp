// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/collectives/soak_body.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "tests/support/draws.h"
#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm::testing {
namespace {

/// Whole numbers of which sums over 8 ranks are exact in every dtype.
int number(std::uint64_t seed, int rank, std::size_t i) {
  return static_cast<int>((seed + i * 7 + static_cast<std::size_t>(rank) * 3) % 9);
}

/// A collective in flight, and what is to be true when it is done.
struct Flying {
  WorkPtr work;
  std::function<void()> verify;
};

template <typename T>
struct Data {
  std::vector<std::vector<T>> in, out;
};

template <typename T>
std::vector<TensorView> views_of(std::vector<std::vector<T>>& all) {
  std::vector<TensorView> views;
  for (auto& one : all) views.push_back(view_of(one));
  return views;
}

template <typename T>
void expect_numbers(const std::vector<T>& values, std::uint64_t seed, const char* what,
                    const std::function<int(std::size_t)>& expected) {
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(values[i]), static_cast<float>(expected(i)))
        << what << ", MESHLOOM_TEST_SEED=" << seed << ", element " << i << " of " << values.size();
}

/// Sizes by rank, some of them 0.
std::vector<std::size_t> draw_sizes(std::mt19937_64& random, int ranks) {
  const std::size_t most = std::size_t{1} << (random() % 18);
  std::vector<std::size_t> sizes;
  for (int r = 0; r < ranks; ++r) sizes.push_back(random() % 5 == 0 ? 0 : random() % most + 1);
  return sizes;
}

template <typename T>
class Draw {
 public:
  Draw(ProcessGroup& group, std::uint64_t seed)
      : group_(group), seed_(seed), random_(seed), data_(std::make_shared<Data<T>>()) {}

  Flying start() {
    const int kind = static_cast<int>(random_() % 8);
    sizes_ = draw_sizes(random_, group_.size());
    root_ = static_cast<int>(random_() % static_cast<std::uint64_t>(group_.size()));
    switch (kind) {
      case 0: return all_reduce();
      case 1: return all_gather();
      case 2: return reduce_scatter();
      case 3: return all_to_all();
      case 4: return broadcast();
      case 5: return scatter();
      case 6: return gather();
      default: return {group_.barrier(), [] {}};
    }
  }

 private:
  int ranks() const { return group_.size(); }
  std::size_t own() const { return static_cast<std::size_t>(group_.rank()); }

  std::vector<T> values(int rank, std::size_t count, int salt = 0) const {
    std::vector<T> out(count);
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(
          static_cast<float>(number(seed_ + static_cast<std::uint64_t>(salt), rank, i)));
    return out;
  }
  int sum(std::size_t i, int salt = 0) const {
    int total = 0;
    for (int r = 0; r < ranks(); ++r)
      total += number(seed_ + static_cast<std::uint64_t>(salt), r, i);
    return total;
  }
  int one(int rank, std::size_t i, int salt = 0) const {
    return number(seed_ + static_cast<std::uint64_t>(salt), rank, i);
  }

  Flying all_reduce() {
    data_->out = {values(group_.rank(), sizes_[0])};
    return {group_.all_reduce(view_of(data_->out[0]), ReduceOp::kSum), [*this] {
              expect_numbers(data_->out[0], seed_, "all_reduce",
                             [&](std::size_t i) { return sum(i); });
            }};
  }
  Flying all_gather() {
    for (const std::size_t size : sizes_) data_->out.emplace_back(size);
    data_->out[own()] = values(group_.rank(), sizes_[own()]);
    const auto outputs = views_of(data_->out);
    return {group_.all_gather(outputs, outputs[own()]), [*this] {
              for (int r = 0; r < ranks(); ++r)
                expect_numbers(data_->out[static_cast<std::size_t>(r)], seed_, "all_gather",
                               [&](std::size_t i) { return one(r, i); });
            }};
  }
  Flying reduce_scatter() {
    for (int r = 0; r < ranks(); ++r)
      data_->in.push_back(values(group_.rank(), sizes_[static_cast<std::size_t>(r)], r));
    data_->out.emplace_back(sizes_[own()]);
    return {group_.reduce_scatter(view_of(data_->out[0]), views_of(data_->in), ReduceOp::kSum),
            [*this] {
              expect_numbers(data_->out[0], seed_, "reduce_scatter",
                             [&](std::size_t i) { return sum(i, group_.rank()); });
            }};
  }
  Flying all_to_all() {
    // Rank s has sizes_[(s + d) % ranks] for rank d.
    const auto size = [&](int from, int to) {
      return sizes_[static_cast<std::size_t>((from + to) % ranks())];
    };
    for (int r = 0; r < ranks(); ++r) {
      data_->in.push_back(values(group_.rank(), size(group_.rank(), r), r));
      data_->out.emplace_back(size(r, group_.rank()));
    }
    return {group_.all_to_all(views_of(data_->out), views_of(data_->in)), [*this] {
              for (int r = 0; r < ranks(); ++r)
                expect_numbers(data_->out[static_cast<std::size_t>(r)], seed_, "all_to_all",
                               [&](std::size_t i) { return one(r, i, group_.rank()); });
            }};
  }
  Flying broadcast() {
    data_->out = {values(group_.rank(), sizes_[0])};
    return {group_.broadcast(view_of(data_->out[0]), root_), [*this] {
              expect_numbers(data_->out[0], seed_, "broadcast",
                             [&](std::size_t i) { return one(root_, i); });
            }};
  }
  Flying scatter() {
    for (int r = 0; r < ranks() && group_.rank() == root_; ++r)
      data_->in.push_back(values(root_, sizes_[static_cast<std::size_t>(r)], r));
    data_->out.emplace_back(sizes_[own()]);
    return {group_.scatter(view_of(data_->out[0]), views_of(data_->in), root_), [*this] {
              expect_numbers(data_->out[0], seed_, "scatter",
                             [&](std::size_t i) { return one(root_, i, group_.rank()); });
            }};
  }
  Flying gather() {
    for (int r = 0; r < ranks() && group_.rank() == root_; ++r)
      data_->out.emplace_back(sizes_[static_cast<std::size_t>(r)]);
    data_->in = {values(group_.rank(), sizes_[own()])};
    return {group_.gather(views_of(data_->out), view_of(data_->in[0]), root_), [*this] {
              for (std::size_t r = 0; r < data_->out.size(); ++r)
                expect_numbers(data_->out[r], seed_, "gather",
                               [&](std::size_t i) { return one(static_cast<int>(r), i); });
            }};
  }

  ProcessGroup& group_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::shared_ptr<Data<T>> data_;
  std::vector<std::size_t> sizes_;
  int root_ = 0;
};

Flying start(ProcessGroup& group, std::uint64_t seed) {
  switch (seed % 4) {
    case 0: return Draw<std::int32_t>(group, seed).start();
    case 1: return Draw<bfloat16>(group, seed).start();
    case 2: return Draw<double>(group, seed).start();
    default: return Draw<float>(group, seed).start();
  }
}

}  // namespace

void check_soak(RankRuntime& runtime) {
  const auto world = make_group(runtime);
  std::vector<std::vector<int>> halves(2);
  for (int r = 0; r < world->size(); ++r) halves[static_cast<std::size_t>(r % 2)].push_back(r);
  if (halves[1].empty()) halves.pop_back();
  const auto half = world->split(halves, "half");
  const auto draws = meshloom::testing::draws_from_environment(1000);
  std::mt19937_64 own(draws.first_seed + static_cast<std::uint64_t>(world->rank()));
  std::deque<Flying> flying;
  for (std::uint64_t seed = draws.first_seed; seed < draws.first_seed + draws.count; ++seed) {
    if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
    flying.push_back(start(seed % 5 == 0 ? *half : *world, seed));
    while (flying.size() > seed % 6) {
      flying.front().work->wait_host();
      flying.front().verify();
      if (::testing::Test::HasFatalFailure()) return;
      flying.pop_front();
    }
  }
  for (Flying& one : flying) {
    one.work->wait_host();
    one.verify();
  }
}

}  // namespace meshloom::comm::testing
