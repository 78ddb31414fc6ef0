// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/validation_losses.h"

#include <span>

#include "daemon/comm/agreement/rank_values.h"
#include "daemon/comm/agreement/status_agreement.h"

namespace meshloom::train {

std::vector<LossSum> validation_losses(ModelRun& model, const DataFeed& data,
                                       const ValidationBatches& batches,
                                       comm::ProcessGroup& world) {
  std::vector<LossSum> sums(
      static_cast<std::size_t>(data.validation_batches(batches.set, batches.first, batches.count)));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    BatchCall call;
    run_agreed(world, [&] {
      call.micro_batches =
          data.validation_batch(batches.set, batches.first + static_cast<std::int64_t>(i));
    });
    sums[i].loss = model.forward(call).loss;
    if (!model.mesh().leads_samples()) continue;
    for (const TokenBatch& part : call.micro_batches) {
      sums[i].labels += static_cast<double>(part.counted);
      sums[i].bytes += part.bytes;
      for (const std::int64_t length : part.spans) sums[i].tokens += static_cast<double>(length);
    }
  }
  if (sums.empty()) return sums;  // the data have ended, on all ranks alike
  static_assert(sizeof(LossSum) == 4 * sizeof(double));
  all_reduce(world, std::span(&sums.data()->loss, 4 * sums.size()), comm::ReduceOp::kSum);
  return sums;
}

}  // namespace meshloom::train
