// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job_data.h"

#include <span>

#include "daemon/train/all_reduce_values.h"
#include "daemon/train/resolve.h"
#include "daemon/train/status_agreement.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

DataFeed open_feed(const RankResources& resources, const v1::RunConfig& config,
                   const RunOptions& options, const nn::ModelConfig& model,
                   const comm::ProcessGroup& data_ranks) {
  const RunData data =
      open_run_data(config, model, options.data_dir, "run.data", options.text, resources.files());
  check_internal(data.training != nullptr, "the run's text is not tokenized");
  check_enough(config, data);
  return DataFeed(config, data, model, data_ranks);
}

}  // namespace

JobData::JobData(const RankResources& resources, const v1::RunConfig& config,
                 const RunOptions& options, const nn::ModelConfig& model,
                 const comm::ProcessGroup& data_ranks)
    : world_(*resources.world),
      seq_len_(config.training().seq_len()),
      feed_(open_feed(resources, config, options, model, data_ranks)) {}

FedBatch JobData::training_batch(const TrainingBatch& batch, const RunMesh& mesh) const {
  return feed_.training_batch(batch.first_sample, world_, mesh.leads_samples());
}

std::vector<LossSum> JobData::losses(ModelRun& model, const ValidationBatches& batches) const {
  std::vector<LossSum> sums(static_cast<std::size_t>(
      feed_.validation_batches(batches.set, batches.first, batches.count)));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::vector<HostBatch> parts;
    run_agreed(world_, [&] {
      parts = feed_.validation_batch(batches.set, batches.first + static_cast<std::int64_t>(i));
    });
    for (const HostBatch& part : parts) {
      const LossSum share = model.forward(part, seq_len_);
      sums[i].loss += share.loss;
      sums[i].labels += share.labels;
      sums[i].bytes += share.bytes;
      if (!model.mesh().leads_samples()) continue;
      for (const std::int64_t length : part.spans) sums[i].tokens += static_cast<double>(length);
    }
  }
  if (sums.empty()) return sums;  // the data have ended, on all ranks alike
  static_assert(sizeof(LossSum) == 4 * sizeof(double));
  all_reduce(world_, std::span(&sums.data()->loss, 4 * sums.size()), comm::ReduceOp::kSum);
  return sums;
}

}  // namespace meshloom::train
