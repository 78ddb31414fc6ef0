// SPDX-License-Identifier: Apache-2.0
// Times all_reduce of float32 against a memcpy of the same run: run_mpi.sh 2 60 all_reduce_bench
// [LOCAL_RANKS]. One JSON line per size, printed by rank 0. With LOCAL_RANKS the ranks are forked
// instead.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/mesh/mpi_runtime.h"

namespace meshloom::comm {
namespace {

template <typename Body>
double median_seconds(int repetitions, Body&& body) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions + 2; ++i) {
    const auto start = Clock::now();
    body();
    // The first two touch memory and fill pools.
    if (i >= 2) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(),
                   seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

int measure(RankRuntime& runtime) {
  const auto group = runtime.make_world_group();
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{4} << 10, std::size_t{64} << 10,
                                  std::size_t{1} << 20, std::size_t{25} << 20}) {
    std::vector<float> data(bytes / 4, 1.0f), copy(bytes / 4);
    const TensorView view =
        make_view(data.data(), DType::kFloat32, {static_cast<std::int64_t>(data.size())});
    const int repetitions = bytes > (1 << 20) ? 20 : 200;
    const double reduce =
        median_seconds(repetitions, [&] { group->all_reduce(view, ReduceOp::kMax)->wait_host(); });
    // All ranks copy at once, as they reduce at once.
    const double memory = median_seconds(repetitions,
                                         [&] {
                                           group->barrier()->wait_host();
                                           std::memcpy(copy.data(), data.data(), bytes);
                                         }) -
                          median_seconds(repetitions, [&] { group->barrier()->wait_host(); });
    if (runtime.rank() == 0)
      std::printf(
          "%s\n",
          fmt::format(
              "{{\"ranks\": {}, \"bytes\": {}, \"all_reduce_us\": {:.1f}, \"memcpy_us\": {:.1f}, "
              "\"ratio\": {:.1f}, \"gb_per_s\": {:.2f}}}",
              group->size(), bytes, reduce * 1e6, memory * 1e6, reduce / memory,
              static_cast<double>(bytes) / reduce * 1e-9)
              .c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace meshloom::comm

int main(int argc, char** argv) {
  using namespace meshloom::comm;
  if (argc > 1) return run_local_ranks(std::atoi(argv[1]), measure);
  MpiRuntime runtime;
  const int result = measure(runtime);
  runtime.finish();
  return result;
}
