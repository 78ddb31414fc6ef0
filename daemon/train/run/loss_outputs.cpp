// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/loss_outputs.h"

#include "daemon/train/loss/batch_parts.h"

namespace meshloom::train {
namespace {

const v1::Datum& datum_of(const v1::LossBatch& batch, std::int64_t i) {
  return batch.data(static_cast<int>(i));
}

std::vector<float> message_of(const v1::LossBatch& batch, const std::vector<TokenBatch>& mine,
                              const LogProbs& log_probs) {
  std::vector<float> message;
  for (std::size_t k = 0; k < mine.size(); ++k) {
    for (std::int64_t row = 0; row < mine[k].rows; ++row) {
      const std::vector<float> values =
          row_log_probs(mine[k], row, datum_of(batch, mine[k].first_datum + row), log_probs[k]);
      message.insert(message.end(), values.begin(), values.end());
    }
  }
  return message;
}

TensorView view_of(std::vector<float>& values) {
  return make_view(values.data(), DType::kFloat32, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

std::vector<float> row_log_probs(const TokenBatch& batch, std::int64_t row, const v1::Datum& datum,
                                 std::span<const float> log_probs) {
  const std::int64_t each = targets_per_token(datum);
  std::vector<float> values;
  for (std::int64_t t = 0; t < datum.tokens_size(); ++t)
    for (std::int64_t k = 0; k < each; ++k)
      values.push_back(
          log_probs[static_cast<std::size_t>((row * batch.length + t) * batch.targets + k)]);
  return values;
}

std::vector<std::vector<float>> gather_log_probs(const RunMesh& mesh, const v1::LossBatch& batch,
                                                 const BatchSplit& split,
                                                 const std::vector<TokenBatch>& mine,
                                                 const LogProbs& log_probs) {
  comm::ProcessGroup& world = mesh.world();
  std::vector<float> message;
  if (mesh.leads_samples()) message = message_of(batch, mine, log_probs);
  if (world.rank() != 0) {
    world.gather({}, view_of(message), 0)->wait_host();
    return {};
  }
  std::vector<std::vector<std::int64_t>> data;
  std::vector<std::vector<float>> messages;
  std::vector<TensorView> views;
  const BatchPlan plan{split.samples, split.micro_batch_size, split.ranks};
  for (int rank = 0; rank < world.size(); ++rank) {
    const SamplePlace place = sample_place(*mesh.layout(), rank);
    data.push_back(place.leads ? samples_of(plan, place.data) : std::vector<std::int64_t>());
    std::size_t size = 0;
    for (const std::int64_t i : data.back())
      size += static_cast<std::size_t>(datum_of(batch, i).targets_size());
    messages.emplace_back(size);
  }
  for (std::vector<float>& values : messages) views.push_back(view_of(values));
  world.gather(views, view_of(message), 0)->wait_host();
  messages[0] = std::move(message);

  std::vector<std::vector<float>> result(static_cast<std::size_t>(batch.data_size()));
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    auto next = messages[rank].begin();
    for (const std::int64_t i : data[rank]) {
      const auto end = next + datum_of(batch, i).targets_size();
      result[static_cast<std::size_t>(i)].assign(next, end);
      next = end;
    }
  }
  return result;
}

LossFunction loss_function(const TokenLoss& loss, const v1::LossBatch& batch) {
  return [&loss, &batch](const TokenBatch& micro, std::span<const float> log_probs) {
    LossOfLogProbs result{0.0, std::vector<float>(log_probs.size(), 0.0f)};
    for (std::int64_t row = 0; row < micro.rows; ++row) {
      const v1::Datum& datum = datum_of(batch, micro.first_datum + row);
      const DatumLoss of_datum =
          datum_loss(loss, datum, row_log_probs(micro, row, datum, log_probs));
      for (const double value : of_datum.losses) result.loss += value;
      const std::int64_t each = targets_per_token(datum);
      for (std::size_t i = 0; i < of_datum.gradients.size(); ++i) {
        const auto t = static_cast<std::int64_t>(i) / each, k = static_cast<std::int64_t>(i) % each;
        const std::int64_t to = (row * micro.length + t) * micro.targets + k;
        result.gradients[static_cast<std::size_t>(to)] = static_cast<float>(of_datum.gradients[i]);
      }
    }
    return result;
  };
}

v1::LossOutput loss_output(const TokenLoss& loss, const v1::LossBatch& batch,
                           const std::vector<std::vector<float>>& log_probs) {
  v1::LossOutput output;
  LossMetrics metrics;
  for (std::size_t i = 0; i < log_probs.size(); ++i) {
    const v1::Datum& datum = datum_of(batch, static_cast<std::int64_t>(i));
    const DatumLoss result = datum_loss(loss, datum, log_probs[i]);
    check_finite(loss, datum, i, log_probs[i], result);
    metrics.add(loss, datum, log_probs[i], result);
    v1::DatumOutput& of_datum = *output.add_outputs();
    of_datum.mutable_logprobs()->Add(log_probs[i].begin(), log_probs[i].end());
    for (const double value : result.losses) of_datum.add_losses(static_cast<float>(value));
  }
  const auto values = metrics.values(loss);
  output.mutable_metrics()->insert(values.begin(), values.end());
  return output;
}

}  // namespace meshloom::train
