// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/machine.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

void check_positive(const Machine& machine, const char* field, double value) {
  if (!(value > 0.0) || !std::isfinite(value))
    throw InvalidArgument(
        fmt::format("machine {}: {} is {}, expected a positive number", machine.name, field, value),
        "INVALID_MACHINE", {{"field", field}});
}

}  // namespace

Machine share_of_rank(const Machine& machine, std::int64_t ranks) {
  check_positive(machine, "float32_flops", machine.float32_flops);
  check_positive(machine, "bfloat16_flops", machine.bfloat16_flops);
  check_positive(machine, "attention_efficiency", machine.attention_efficiency);
  check_positive(machine, "memory_bytes_per_second", machine.memory_bytes_per_second);
  check_positive(machine, "ranks_per_host", machine.topology.ranks_per_host);
  check_positive(machine, "intra_host.bytes_per_second",
                 machine.topology.intra_host.bytes_per_second);
  check_positive(machine, "inter_host.bytes_per_second",
                 machine.topology.inter_host.bytes_per_second);
  if (!machine.shared_by_ranks) return machine;
  const double parts =
      static_cast<double>(std::min<std::int64_t>(ranks, machine.topology.ranks_per_host));
  Machine share = machine;
  share.float32_flops /= parts;
  share.bfloat16_flops /= parts;
  share.float32_peak_flops /= parts;
  share.bfloat16_peak_flops /= parts;
  share.memory_bytes_per_second /= parts;
  share.memory_bytes = static_cast<std::int64_t>(static_cast<double>(machine.memory_bytes) / parts);
  share.topology.intra_host.bytes_per_second /= parts;
  share.topology.inter_host.bytes_per_second /= parts;
  share.shared_by_ranks = false;
  return share;
}

}  // namespace meshloom::planner
