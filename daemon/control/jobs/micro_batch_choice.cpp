// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/micro_batch_choice.h"

#include <fmt/format.h>

#include "daemon/plan/job_memory.h"
#include "kernels/base/integer_math.h"

namespace meshloom::control {
namespace {

std::int64_t bytes_with(v1::RunConfig config, const nn::ModelConfig& model, std::int64_t samples) {
  config.mutable_training()->set_micro_batch_size(samples);
  return plan::estimate_job_memory(config, model).total();
}

}  // namespace

std::optional<std::string> choose_micro_batch(v1::RunConfig* resolved, const nn::ModelConfig& model,
                                              std::int64_t rank_bytes) {
  const std::int64_t share = resolved->training().micro_batch_size();
  const std::int64_t needed = bytes_with(*resolved, model, share);
  if (rank_bytes <= 0 || needed <= rank_bytes) return std::nullopt;
  // The least number of parts that fits: memory grows with the samples at once.
  std::int64_t too_few = 1, parts = share;
  while (parts - too_few > 1) {
    const std::int64_t middle = too_few + (parts - too_few) / 2;
    (bytes_with(*resolved, model, divide_up(share, middle)) <= rank_bytes ? parts : too_few) =
        middle;
  }
  const std::int64_t chosen = divide_up(share, parts);
  if (chosen == share) return std::nullopt;
  resolved->mutable_training()->set_micro_batch_size(chosen);
  constexpr double kMiB = 1 << 20;
  return fmt::format(
      "run.training.micro_batch_size: {} was chosen, gradients are accumulated over {} micro "
      "batches a step: all {} samples of a rank at once would need about {:.0f} MiB of the {:.0f} "
      "MiB that a rank may use",
      chosen, divide_up(share, chosen), share, static_cast<double>(needed) / kMiB,
      static_cast<double>(rank_bytes) / kMiB);
}

}  // namespace meshloom::control
