// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/collectives/collectives_body.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "daemon/comm/mesh/topology.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/flight/group_body.h"

namespace meshloom::comm::testing {
namespace {

using namespace std::chrono_literals;

/// A small whole number that depends on rank and index: sums of it are exact in every dtype.
int number(int rank, std::int64_t i) { return static_cast<int>((i * 7 + rank * 3) % 5); }

template <typename T>
std::vector<T> numbers(int rank, std::int64_t n) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(static_cast<T>(static_cast<float>(number(rank, i))));
  return values;
}

int reduced(ReduceOp op, int ranks, std::int64_t i) {
  int result = number(0, i);
  for (int r = 1; r < ranks; ++r) {
    const int next = number(r, i);
    if (op == ReduceOp::kSum) result += next;
    if (op == ReduceOp::kMax) result = std::max(result, next);
    if (op == ReduceOp::kMin) result = std::min(result, next);
    if (op == ReduceOp::kProd) result *= next;
  }
  return result;
}

template <typename T>
void check_all_reduce(ProcessGroup& group, ReduceOp op, std::int64_t n) {
  std::vector<T> values = numbers<T>(group.rank(), n);
  group.all_reduce(view_of(values), op)->wait_host();
  for (std::int64_t i = 0; i < n; ++i) {
    const float expected = static_cast<float>(reduced(op, group.size(), i));
    ASSERT_EQ(static_cast<float>(values[static_cast<std::size_t>(i)]), expected)
        << dtype_name(dtype_of<T>()) << " element " << i << " of " << n << ", " << group.size()
        << " ranks";
  }
}

/// Averages, of which every dtype holds the sum exactly.
template <typename T>
void check_average(ProcessGroup& group, std::int64_t n) {
  std::vector<T> values = numbers<T>(group.rank(), n), parts = values;
  group.all_reduce(view_of(values), ReduceOp::kAvg)->wait_host();
  std::vector<TensorView> inputs(static_cast<std::size_t>(group.size()), view_of(parts));
  std::vector<T> part(static_cast<std::size_t>(n));
  group.reduce_scatter(view_of(part), inputs, ReduceOp::kAvg)->wait_host();
  for (std::int64_t i = 0; i < n; ++i) {
    using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const T expected = static_cast<T>(static_cast<A>(reduced(ReduceOp::kSum, group.size(), i)) /
                                      static_cast<A>(group.size()));
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(static_cast<A>(values[at]), static_cast<A>(expected)) << "element " << i;
    ASSERT_EQ(static_cast<A>(part[at]), static_cast<A>(expected)) << "element " << i;
  }
}

/// Each rank's own size, some of them 0.
std::int64_t uneven(int rank, int round) {
  return rank == 1 ? 0 : (rank * 5 + round * 977) % 100'003;
}

}  // namespace

void check_all_reduce_dtypes_and_ops(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
    for (const std::int64_t n : {257, 70'001}) {
      check_all_reduce<float>(*group, op, n);
      check_all_reduce<double>(*group, op, n);
      check_all_reduce<bfloat16>(*group, op, n);
      check_all_reduce<float16>(*group, op, n);
      check_all_reduce<std::int64_t>(*group, op, n);
      check_all_reduce<std::int32_t>(*group, op, n);
      check_all_reduce<std::uint8_t>(*group, op, n);
    }
  }
  // std::vector<bool> has no bytes.
  std::uint8_t flags[2] = {static_cast<std::uint8_t>(group->rank() == 0), 0};
  group->all_reduce(make_view(flags, DType::kBool, {2}), ReduceOp::kSum)->wait_host();
  EXPECT_EQ(flags[0], 1);
  EXPECT_EQ(flags[1], 0);
  float nan = group->rank() == 0 ? std::nanf("") : 1.0f;
  group->all_reduce(make_view(&nan, DType::kFloat32, {1}), ReduceOp::kMax)->wait_host();
  EXPECT_TRUE(std::isnan(nan));
}

void check_averages(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (const std::int64_t n : {257, 70'001}) {
    check_average<float>(*group, n);
    check_average<double>(*group, n);
    check_average<bfloat16>(*group, n);
    check_average<float16>(*group, n);
  }
  std::vector<std::int64_t> integers(5, 1);
  EXPECT_THROW(group->all_reduce(view_of(integers), ReduceOp::kAvg), InvalidArgument);
  const std::vector<TensorView> inputs(static_cast<std::size_t>(group->size()), view_of(integers));
  EXPECT_THROW(group->reduce_scatter(view_of(integers), inputs, ReduceOp::kAvg), InvalidArgument);
}

void check_all_reduce_sizes(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  // Around the border between one-shot and two-shot, fewer elements than ranks, and several slices.
  for (const std::int64_t n : {0, 1, 2, 3, 5, 8191, 8192, 8193, 65'536, 300'007, 1'000'003})
    check_all_reduce<float>(*group, ReduceOp::kSum, n);
}

void check_all_reduce_algorithms(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (const std::int64_t n : {0, 1, 3, 1000, 8193, 300'007, 1'000'003}) {
    std::mt19937 random(static_cast<unsigned>(group->rank() + 1));
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = normal(random);
    std::vector<float> one_shot = values, two_shot = values;
    group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
    group->all_reduce(view_of(one_shot), ReduceOp::kSum, AllReduceAlgorithm::kOneShot)->wait_host();
    group->all_reduce(view_of(two_shot), ReduceOp::kSum, AllReduceAlgorithm::kTwoShot)->wait_host();
    EXPECT_EQ(one_shot, values) << n << " elements";
    EXPECT_EQ(two_shot, values) << n << " elements";
  }
}

void check_all_reduce_is_in_rank_order(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (const std::int64_t n : {std::int64_t{1000}, std::int64_t{400'000}}) {
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < group->size(); ++r) {
      std::mt19937 random(static_cast<unsigned>(r + 1));
      std::normal_distribution<float> normal(0.0f, std::pow(10.0f, static_cast<float>(r % 4)));
      std::vector<float>& values = inputs.emplace_back(static_cast<std::size_t>(n));
      for (float& value : values) value = normal(random);
    }
    std::vector<float> values = inputs[static_cast<std::size_t>(group->rank())];
    group->all_reduce(view_of(values), ReduceOp::kSum)->wait_host();
    for (std::size_t i = 0; i < values.size(); ++i) {
      float expected = inputs[0][i];
      for (std::size_t r = 1; r < inputs.size(); ++r) expected += inputs[r][i];
      ASSERT_EQ(values[i], expected) << "element " << i;
    }
  }
}

void check_reduce_scatter_uneven(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> inputs;
    std::vector<TensorView> views;
    for (int r = 0; r < group->size(); ++r)
      inputs.push_back(numbers<float>(group->rank() + r, uneven(r, round)));
    for (auto& input : inputs) views.push_back(view_of(input));
    std::vector<float> output(static_cast<std::size_t>(uneven(group->rank(), round)), -1.0f);
    group->reduce_scatter(view_of(output), views, ReduceOp::kSum)->wait_host();
    for (std::size_t i = 0; i < output.size(); ++i) {
      float expected = 0.0f;
      for (int r = 0; r < group->size(); ++r)
        expected += static_cast<float>(number(r + group->rank(), static_cast<std::int64_t>(i)));
      ASSERT_EQ(output[i], expected) << "round " << round << " element " << i;
    }
  }
}

void check_all_gather_uneven(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> input = numbers<float>(group->rank(), uneven(group->rank(), round));
    std::vector<std::vector<float>> outputs;
    std::vector<TensorView> views;
    for (int r = 0; r < group->size(); ++r)
      outputs.emplace_back(static_cast<std::size_t>(uneven(r, round)), -1.0f);
    for (auto& output : outputs) views.push_back(view_of(output));
    // In the second round a rank's own output is its input.
    if (round == 1) views[static_cast<std::size_t>(group->rank())] = view_of(input);
    group->all_gather(views, view_of(input))->wait_host();
    for (int r = 0; r < group->size(); ++r) {
      if (round == 1 && r == group->rank()) continue;
      EXPECT_EQ(outputs[static_cast<std::size_t>(r)], numbers<float>(r, uneven(r, round)))
          << "rank " << r;
    }
  }
}

void check_all_to_all_uneven(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  const auto size_between = [](int from, int to) { return uneven((from * 3 + to) % 7, 2); };
  std::vector<std::vector<std::int64_t>> inputs, outputs;
  std::vector<TensorView> in_views, out_views;
  for (int r = 0; r < group->size(); ++r) {
    inputs.push_back(numbers<std::int64_t>(group->rank() * 10 + r, size_between(group->rank(), r)));
    outputs.emplace_back(static_cast<std::size_t>(size_between(r, group->rank())));
  }
  for (auto& input : inputs) in_views.push_back(view_of(input));
  for (auto& output : outputs) out_views.push_back(view_of(output));
  for (const bool direct : {false, true}) {
    for (auto& output : outputs) std::fill(output.begin(), output.end(), -1);
    const WorkPtr work =
        direct ? group->send_recv(out_views, in_views) : group->all_to_all(out_views, in_views);
    work->wait_host();
    for (int r = 0; r < group->size(); ++r)
      EXPECT_EQ(outputs[static_cast<std::size_t>(r)],
                numbers<std::int64_t>(r * 10 + group->rank(), size_between(r, group->rank())));
  }
  const std::uint64_t once = group->size() == 1 ? 0 : 1;
  EXPECT_EQ(group->counter("all_to_all").calls, once);
  EXPECT_EQ(group->counter("send_recv").calls, once);
}

void check_scatter_uneven(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (int root = 0; root < group->size(); ++root) {
    std::vector<std::vector<float>> inputs;
    std::vector<TensorView> views;
    for (int r = 0; group->rank() == root && r < group->size(); ++r)
      inputs.push_back(numbers<float>(root + r, uneven(r, 40'000)));
    for (auto& input : inputs) views.push_back(view_of(input));
    std::vector<float> output(static_cast<std::size_t>(uneven(group->rank(), 40'000)));
    group->scatter(view_of(output), views, root)->wait_host();
    EXPECT_EQ(output, numbers<float>(root + group->rank(), uneven(group->rank(), 40'000)));
  }
}

void check_gather_uneven(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (int root = 0; root < group->size(); ++root) {
    std::vector<float> input = numbers<float>(root + group->rank(), uneven(group->rank(), 40'000));
    std::vector<std::vector<float>> outputs;
    std::vector<TensorView> views;
    for (int r = 0; group->rank() == root && r < group->size(); ++r)
      outputs.emplace_back(static_cast<std::size_t>(uneven(r, 40'000)), -1.0f);
    for (auto& output : outputs) views.push_back(view_of(output));
    // In every other round the root's own output is its input.
    const bool alias = root % 2 == 1;
    if (alias && group->rank() == root) views[static_cast<std::size_t>(root)] = view_of(input);
    group->gather(views, view_of(input), root)->wait_host();
    for (int r = 0; r < static_cast<int>(outputs.size()); ++r) {
      if (alias && r == root) continue;
      EXPECT_EQ(outputs[static_cast<std::size_t>(r)], numbers<float>(root + r, uneven(r, 40'000)))
          << "rank " << r << " of root " << root;
    }
  }
  EXPECT_EQ(group->counter("gather").calls,
            group->size() == 1 ? 0u : static_cast<std::uint64_t>(group->size()));
  std::vector<float> input(3);
  EXPECT_THROW(group->gather({}, view_of(input), group->size()), InvalidArgument);
}

void check_broadcast(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (const std::int64_t n : {0, 1, 1000, 700'001}) {
    for (int root = 0; root < group->size(); ++root) {
      std::vector<float> values = numbers<float>(group->rank() + 1, n);
      group->broadcast(view_of(values), root)->wait_host();
      EXPECT_EQ(values, numbers<float>(root + 1, n)) << n << " elements from rank " << root;
    }
  }
}

void check_send_recv(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  if (group->size() == 1) return;
  const int next = (group->rank() + 1) % group->size();
  const int before = (group->rank() + group->size() - 1) % group->size();
  std::vector<float> small = numbers<float>(group->rank(), 10),
                     large = numbers<float>(group->rank() + 1, 200'000);
  std::vector<float> small_in(10), large_in(200'000);
  // Received in the other order than sent: tags tell them apart.
  const WorkPtr a = group->send(view_of(large), next, 1);
  const WorkPtr b = group->send(view_of(small), next, 0);
  group->recv(view_of(small_in), before, 0)->wait_host();
  group->recv(view_of(large_in), before, 1)->wait_host();
  a->wait_host();
  b->wait_host();
  EXPECT_EQ(small_in, numbers<float>(before, 10));
  EXPECT_EQ(large_in, numbers<float>(before + 1, 200'000));
  // Both ways are counted under one name, bytes by the rank that sends; the record tells them
  // apart.
  EXPECT_EQ(group->counters().size(), 1u);
  EXPECT_EQ(group->counter("send_recv").calls, 4u);
  EXPECT_EQ(group->counter("send_recv").bytes_sent, 800'040u);
  const std::string record = group->flight_record();
  EXPECT_NE(record.find("#0 send 800000 bytes"), std::string::npos) << record;
  EXPECT_NE(record.find("#2 recv 40 bytes"), std::string::npos) << record;

  // Ranks may send and receive different numbers of times between collectives.
  std::vector<float> sum(1, static_cast<float>(group->rank() + 1));
  for (int source = 1; source < group->size(); ++source) {
    float value = 0.0f;
    const TensorView view = make_view(&value, DType::kFloat32, {1});
    if (group->rank() == source) group->send(view, 0, 7)->wait_host();
    if (group->rank() == 0) group->recv(view, source, 7)->wait_host();
  }
  group->all_reduce(view_of(sum), ReduceOp::kSum)->wait_host();
  EXPECT_EQ(sum[0], static_cast<float>(group->size() * (group->size() + 1) / 2));
}

// Nobody leaves before the last one has entered. The ranks share a host, so their clocks are one.
void check_barrier(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  const auto now = [] { return Clock::now().time_since_epoch().count(); };
  for (int late = 0; late < group->size(); ++late) {
    if (group->rank() == late) std::this_thread::sleep_for(10ms);
    std::vector<std::int64_t> entered{now()};
    group->barrier()->wait_host();
    const std::int64_t left = now();
    std::vector<std::vector<std::int64_t>> all(static_cast<std::size_t>(group->size()), {0});
    std::vector<TensorView> views;
    for (auto& of_rank : all) views.push_back(view_of(of_rank));
    group->all_gather(views, view_of(entered))->wait_host();
    for (int r = 0; r < group->size(); ++r)
      EXPECT_LE(all[static_cast<std::size_t>(r)][0], left) << "left before rank " << r << " came";
  }
}

void check_many_in_flight(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  constexpr int kCount = 40;
  std::vector<std::vector<float>> data;
  std::vector<WorkPtr> works;
  for (int i = 0; i < kCount; ++i) data.push_back(numbers<float>(group->rank() + i, 1 + i * 3011));
  for (auto& values : data) works.push_back(group->all_reduce(view_of(values), ReduceOp::kSum));
  for (auto& work : works) work->wait_host();
  for (int i = 0; i < kCount; ++i) {
    const auto& values = data[static_cast<std::size_t>(i)];
    for (std::size_t e = 0; e < values.size(); ++e) {
      int expected = 0;
      for (int r = 0; r < group->size(); ++r)
        expected += number(r + i, static_cast<std::int64_t>(e));
      ASSERT_EQ(values[e], static_cast<float>(expected)) << "collective " << i << " element " << e;
    }
  }
}

void check_waits_in_any_order(RankRuntime& runtime) {
  // Rank 0 waits for the second group first, the others for the first: each must move both.
  const auto first = make_group(runtime);
  const auto second = make_group(runtime);
  std::vector<float> a = numbers<float>(first->rank(), 500'000),
                     b = numbers<float>(first->rank(), 400'000);
  WorkPtr work_a = first->all_reduce(view_of(a), ReduceOp::kSum);
  WorkPtr work_b = second->all_reduce(view_of(b), ReduceOp::kSum);
  if (first->rank() == 0) {
    work_b->wait_host();
    work_a->wait_host();
  } else {
    work_a->wait_host();
    work_b->wait_host();
  }
  EXPECT_EQ(a[4], static_cast<float>(reduced(ReduceOp::kSum, first->size(), 4)));
  EXPECT_EQ(b[3], static_cast<float>(reduced(ReduceOp::kSum, first->size(), 3)));
}

void check_random_delays(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  std::mt19937 random(static_cast<unsigned>(group->rank() + 17));
  std::vector<WorkPtr> works;
  std::vector<std::vector<float>> data;
  data.reserve(60);
  for (int i = 0; i < 60; ++i) {
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    std::vector<float>& values =
        data.emplace_back(numbers<float>(group->rank(), (i * 977) % 40'000));
    if (i % 4 == 3) {
      group->broadcast(view_of(values), i % group->size())->wait_host();
      EXPECT_EQ(values, numbers<float>(i % group->size(), (i * 977) % 40'000));
    } else {
      works.push_back(group->all_reduce(view_of(values), ReduceOp::kSum));
      if (random() % 2 == 0) works.back()->poll();
    }
  }
  for (auto& work : works) work->wait_host();
  for (int i = 0; i < 60; ++i) {
    if (i % 4 == 3) continue;
    const auto& values = data[static_cast<std::size_t>(i)];
    for (std::size_t e = 0; e < values.size(); e += 13)
      ASSERT_EQ(values[e], static_cast<float>(reduced(ReduceOp::kSum, group->size(),
                                                      static_cast<std::int64_t>(e))));
  }
}

void check_topology_is_one_host(RankRuntime& runtime) {
  const Topology topology = probe_topology(runtime.bootstrap());
  EXPECT_EQ(topology.hosts, 1);
  ASSERT_EQ(static_cast<int>(topology.ranks.size()), runtime.world_size());
  for (int r = 0; r < runtime.world_size(); ++r) {
    EXPECT_EQ(topology.ranks[static_cast<std::size_t>(r)].host, 0);
    EXPECT_EQ(topology.ranks[static_cast<std::size_t>(r)].local_rank, r);
    EXPECT_EQ(topology.ranks[static_cast<std::size_t>(r)].local_size, runtime.world_size());
  }
}

std::vector<Check> checks_on_any_hosts(std::span<const Check> more) {
  std::vector<Check> checks{
      {"all_reduce_dtypes_and_ops", check_all_reduce_dtypes_and_ops},
      {"averages", check_averages},
      {"all_reduce_sizes", check_all_reduce_sizes},
      {"all_reduce_algorithms", check_all_reduce_algorithms},
      {"reduce_scatter_uneven", check_reduce_scatter_uneven},
      {"all_gather_uneven", check_all_gather_uneven},
      {"all_to_all_uneven", check_all_to_all_uneven},
      {"scatter_uneven", check_scatter_uneven},
      {"gather_uneven", check_gather_uneven},
      {"broadcast", check_broadcast},
      {"send_recv", check_send_recv},
      {"barrier", check_barrier},
      {"many_in_flight", check_many_in_flight},
      {"waits_in_any_order", check_waits_in_any_order},
      {"random_delays", check_random_delays},
      {"split", check_split},
      {"wrong_arguments", check_wrong_arguments},
      {"missing_peer", check_missing_peer},
      {"abort_flag", check_abort_flag},
      {"dropped_work", check_dropped_work},
  };
  checks.insert(checks.end(), more.begin(), more.end());
  return checks;
}

void check_on_any_hosts(RankRuntime& runtime) {
  for (const Check& check : checks_on_any_hosts()) check.run(runtime);
}

void check_everything(RankRuntime& runtime) {
  check_on_any_hosts(runtime);
  check_all_reduce_is_in_rank_order(runtime);
  check_counters_and_record(runtime);
  check_topology_is_one_host(runtime);
}

}  // namespace meshloom::comm::testing
