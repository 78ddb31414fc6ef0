// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/data_feed.h"

#include <algorithm>
#include <array>
#include <exception>

#include "daemon/comm/agreement/rank_values.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::train {

DataFeed::DataFeed(const v1::RunConfig& config, const RunData& data, const nn::ModelConfig& model,
                   const comm::ProcessGroup& data_ranks)
    : model_(model), identity_(data.identity), data_rank_(data_ranks.rank()) {
  const v1::TrainingConfig& training = config.training();
  const BatchPlan plan = {training.global_batch_size(), training.micro_batch_size(),
                          data_ranks.size()};
  if (data.training->size() > 0)
    training_ = std::make_unique<BatchLoader>(data.training, plan, training.seed(), true);
  const auto add = [&](const std::string& set, const std::shared_ptr<const Dataset>& dataset) {
    if (dataset->size() > 0)
      validation_[set] = std::make_unique<BatchLoader>(dataset, plan, 0, true);
  };
  add("", data.validation);
  for (std::size_t i = 0; i < data.validation_sets.size(); ++i)
    add(config.validation().sets(static_cast<int>(i)).name(), data.validation_sets[i]);
}

bool DataFeed::leave_out_rests() {
  bool has_rests = false;
  for (auto& [set, loader] : validation_) {
    auto whole = std::make_shared<const Dataset>(loader->dataset().without_rest());
    if (whole->size() == loader->dataset().size()) continue;
    has_rests = true;
    loader =
        whole->size() > 0 ? std::make_unique<BatchLoader>(whole, loader->plan(), 0, true) : nullptr;
  }
  std::erase_if(validation_, [](const auto& item) { return !item.second; });
  return has_rests;
}

std::optional<ChatCuts> DataFeed::chat_cuts() const {
  const ChatSamples* const chat = training_ ? training_->dataset().chat() : nullptr;
  return chat != nullptr ? std::optional(chat->cuts()) : std::nullopt;
}

FedBatch DataFeed::training_batch(std::int64_t position, comm::ProcessGroup& world,
                                  bool counts) const {
  if (!training_) throw FailedPrecondition("forward_backward: the run has no data to train on");
  FedBatch batch;
  std::exception_ptr error;
  try {
    batch.micro_batches = training_->load(position, data_rank_);
  } catch (...) {
    error = std::current_exception();
  }
  // One small exchange carries the counts and whether a rank's data were bad.
  std::array<double, 6> sums = {0.0, error ? 1.0 : 0.0, 0.0, 0.0, 0.0, 0.0};
  if (counts) {
    for (const TokenBatch& part : batch.micro_batches) {
      sums[0] += static_cast<double>(part.counted);
      sums[2] += static_cast<double>(part.tokens);
      sums[5] += part.bytes;
      for (const std::int64_t length : part.spans) {
        sums[3] += static_cast<double>(length);
        sums[4] += nn::attention_pairs(model_, length);
      }
    }
  }
  all_reduce(world, sums, comm::ReduceOp::kSum);
  if (sums[1] > 0.0) agree(world, error);
  batch.labels = static_cast<std::int64_t>(sums[0]);
  batch.work = {static_cast<std::int64_t>(sums[2]), static_cast<std::int64_t>(sums[3]), sums[4],
                batch.labels, sums[5]};
  if (batch.labels == 0)
    throw InvalidArgument(
        fmt::format("data: the global batch at sample {} has no label that counts", position));
  return batch;
}

const BatchLoader& DataFeed::validation(const std::string& set) const {
  const auto found = validation_.find(set);
  if (found != validation_.end()) return *found->second;
  if (set.empty()) throw FailedPrecondition("evaluate: there are no validation data");
  throw FailedPrecondition(fmt::format("evaluate: there is no validation set \"{}\"", set));
}

std::int64_t DataFeed::validation_batches(const std::string& set, std::int64_t first,
                                          std::int64_t batches) const {
  const BatchLoader& loader = validation(set);
  const std::int64_t all = divide_up(loader.dataset().size(), loader.plan().global_batch_size);
  return std::clamp<std::int64_t>(all - first, 0, batches);
}

std::vector<TokenBatch> DataFeed::validation_batch(const std::string& set,
                                                   std::int64_t index) const {
  const BatchLoader& loader = validation(set);
  const std::int64_t size = loader.plan().global_batch_size;
  const std::int64_t at = index * size;
  return loader.load(at, data_rank_, std::min(size, loader.dataset().size() - at));
}

}  // namespace meshloom::train
