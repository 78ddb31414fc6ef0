// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/loss/loss_batch.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "daemon/base/field_checks.h"
#include "daemon/base/given_number.h"
#include "daemon/train/data/batch_plan.h"
#include "daemon/train/data/dataset.h"
#include "planner/limits.h"

namespace meshloom::train {
namespace {

/// Places of samples stay far inside 63 bits.
constexpr std::int64_t kMostEpochs = 1 << 20;

/// Checks one datum; names of fields begin with `path`.
class DatumCheck {
 public:
  DatumCheck(const v1::Datum& datum, std::string path, const TokenLoss& loss,
             const LossBatchLimits& limits)
      : datum_(datum), path_(std::move(path)), loss_(loss), limits_(limits) {}

  void run() const {
    const std::int64_t tokens = datum_.tokens_size();
    if (tokens == 0) refuse("tokens", "is empty: a datum has at least one token");
    if (tokens > limits_.tokens)
      refuse("tokens", "{} tokens are more than the run's longest datum of {}", tokens,
             limits_.tokens);
    check_ids("tokens", datum_.tokens(), limits_.vocab_size, "vocabulary");
    const std::int64_t each = targets_per_token(datum_);
    if (each < 1 || each > limits_.vocab_size)
      refuse("targets_per_token",
             "{} is not a number from 1 to the vocabulary of {}; leave it out for 1", each,
             limits_.vocab_size);
    if (each > 1 && !loss_.weighted())
      refuse("targets_per_token", "{}: loss {} takes one target a token", each,
             loss_name(loss_.kind));
    check_size("targets", datum_.targets(), tokens * each);
    check_ids("targets", datum_.targets(), limits_.vocab_size, "vocabulary");
    if (loss_.weighted()) {
      unused("logprobs", datum_.logprobs());
      unused("advantages", datum_.advantages());
      if (!datum_.weights().empty())
        check_floats("weights", datum_.weights(), datum_.targets_size());
    } else {
      unused("weights", datum_.weights());
      check_floats("logprobs", datum_.logprobs(), tokens);
      check_floats("advantages", datum_.advantages(), tokens);
    }
    check_mask(tokens);
    if (!datum_.document_ids().empty()) check_size("document_ids", datum_.document_ids(), tokens);
    if (datum_.position_ids().empty()) return;
    check_size("position_ids", datum_.position_ids(), tokens);
    check_ids("position_ids", datum_.position_ids(), limits_.positions, "positions");
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(const std::string& name, fmt::format_string<Args...> format,
                           Args&&... args) const {
    base::refuse_field(path_ + "." + name, format, std::forward<Args>(args)...);
  }
  template <typename Values>
  void unused(const char* name, const Values& values) const {
    if (!values.empty()) refuse(name, "loss {} has no use for it", loss_name(loss_.kind));
  }
  template <typename Values>
  void check_size(const char* name, const Values& values, std::int64_t expected) const {
    if (values.size() != expected)
      refuse(name, "has {} values, expected {}", values.size(), expected);
  }
  template <typename Values>
  void check_floats(const char* name, const Values& values, std::int64_t expected) const {
    check_size(name, values, expected);
    for (int i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        refuse(fmt::format("{}[{}]", name, i), "{} is not a finite number", values[i]);
  }
  template <typename Values>
  void check_ids(const char* name, const Values& ids, std::int64_t limit, const char* what) const {
    for (int i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= limit)
        refuse(fmt::format("{}[{}]", name, i), "{} is outside the model's {} of {}", ids[i], what,
               limit);
  }
  void check_mask(std::int64_t tokens) const {
    const auto& mask = datum_.sequence_ratio_mask();
    if (loss_.kind != LossKind::kGspo) return unused("sequence_ratio_mask", mask);
    check_floats("sequence_ratio_mask", mask, tokens);
    if (std::all_of(mask.begin(), mask.end(), [](float m) { return m == 0.0f; }))
      refuse("sequence_ratio_mask", "is 0 everywhere: there is nothing to take a mean of");
  }

  const v1::Datum& datum_;
  std::string path_;
  const TokenLoss& loss_;
  const LossBatchLimits& limits_;
};

/// Appends what `value` says of each token, then `padding` up to the micro batch's length.
template <typename To, typename ValueOf>
void append(std::vector<To>& to, const TokenBatch& batch, const v1::Datum& datum, To padding,
            const ValueOf& value) {
  for (int t = 0; t < datum.tokens_size(); ++t) to.push_back(static_cast<To>(value(t)));
  to.resize(to.size() + static_cast<std::size_t>(batch.length - datum.tokens_size()), padding);
}

/// What of the optional tensors a micro batch has.
struct Parts {
  bool weights = false, documents = false, positions = false;
};

/// A datum's documents, numbered from 0 in the order in which they begin: attention only asks which
/// ids are equal, and takes none that are far apart.
std::vector<std::int64_t> document_numbers(const v1::Datum& datum) {
  std::unordered_map<std::int32_t, std::int64_t> numbers;
  std::vector<std::int64_t> documents;
  for (const std::int32_t id : datum.document_ids())
    documents.push_back(
        numbers.emplace(id, static_cast<std::int64_t>(numbers.size())).first->second);
  return documents;
}

void append_datum(TokenBatch& batch, const v1::Datum& datum, const Parts& parts) {
  append<std::int64_t>(batch.inputs, batch, datum, 0, [&](int t) { return datum.tokens(t); });
  // A datum with fewer targets a token than others of the micro batch leaves the rest ignored.
  const std::int64_t each = targets_per_token(datum);
  for (std::int64_t t = 0; t < batch.length; ++t)
    for (std::int64_t k = 0; k < batch.targets; ++k)
      batch.labels.push_back(t < datum.tokens_size() && k < each
                                 ? datum.targets(static_cast<int>(t * each + k))
                                 : kIgnoredLabel);
  if (parts.weights)
    append(batch.weights, batch, datum, 0.0f,
           [&](int t) { return datum.weights().empty() ? 1.0f : datum.weights(t); });
  if (parts.documents) {
    const std::vector<std::int64_t> documents = document_numbers(datum);
    const std::int64_t padding =
        documents.empty() ? 1 : *std::max_element(documents.begin(), documents.end()) + 1;
    append(batch.documents, batch, datum, padding,
           [&](int t) { return documents.empty() ? 0 : documents[static_cast<std::size_t>(t)]; });
  }
  if (parts.positions)
    append<std::int64_t>(batch.positions, batch, datum, 0, [&](int t) {
      return datum.position_ids().empty() ? t : datum.position_ids(t);
    });
}

/// `first_datum`: where the data of the range are in the batch.
TokenBatch make_micro_batch(const v1::LossBatch& batch, std::int64_t first_datum,
                            const planner::ShardRange& range, const BatchSplit& split) {
  TokenBatch micro;
  micro.rows = range.size();
  micro.first_datum = first_datum;
  micro.first_sample = split.first_sample + range.begin;
  Parts parts{.weights = batch.loss() == loss_name(LossKind::kCrossEntropy),
              .documents = split.documents};
  const auto data = [&](std::int64_t i) -> const v1::Datum& {
    return batch.data(static_cast<int>(i));
  };
  const std::int64_t end = first_datum + range.size();
  for (std::int64_t i = first_datum; i < end; ++i) {
    micro.length = std::max<std::int64_t>(micro.length, data(i).tokens_size());
    micro.targets = std::max(micro.targets, targets_per_token(data(i)));
    parts.documents = parts.documents || !data(i).document_ids().empty();
    parts.positions = parts.positions || !data(i).position_ids().empty();
  }
  parts.weights = parts.weights && micro.targets == 1;
  for (std::int64_t i = first_datum; i < end; ++i) append_datum(micro, data(i), parts);
  return micro;
}

void check_size_at_once(const v1::LossBatch& batch, std::int64_t samples, std::int64_t longest,
                        std::int64_t targets, const LossBatchLimits& limits) {
  const std::int64_t rows = std::min(micro_batch_size_of(batch, limits.micro_batch_size), samples);
  if (rows * longest * targets > planner::kMostTokensAtOnce)
    base::refuse_field("micro_batch_size",
                       "{} samples of {} tokens with {} targets each are {} at once, at most {} "
                       "are allowed",
                       rows, longest, targets, rows * longest * targets,
                       planner::kMostTokensAtOnce);
}

void check_reference(const v1::LossBatch& batch, const TokenLoss& loss,
                     const LossBatchLimits& limits) {
  const v1::DataReference& reference = batch.reference();
  if (!batch.data().empty())
    base::refuse_field("data", "is given beside a reference: a batch has one of the two");
  if (!loss.weighted())
    base::refuse_field("reference",
                       "loss {} needs log-probs and advantages, which data do not have",
                       loss_name(loss.kind));
  base::check_count("reference.samples", reference.samples(), 1);
  base::check_at_most("reference.samples", reference.samples(), planner::kMostBatch);
  base::check_count("reference.first_sample", reference.first_sample(), 0);
  base::check_count("reference.epoch", reference.epoch(), 0);
  base::check_at_most("reference.epoch", reference.epoch(), kMostEpochs);
  base::check_given_positive("reference.seq_len", reference.has_seq_len(), reference.seq_len(),
                             "the run's longest datum");
  if (reference.seq_len() > limits.tokens)
    base::refuse_field("reference.seq_len", "{} tokens are more than the run's longest datum of {}",
                       reference.seq_len(), limits.tokens);
  const std::int64_t length = reference.has_seq_len() ? reference.seq_len() : limits.tokens;
  check_size_at_once(batch, reference.samples(), length, 1, limits);
}

}  // namespace

TokenLoss check_loss_batch(const v1::LossBatch& batch, const LossBatchLimits& limits) {
  const TokenLoss loss =
      make_token_loss(batch.loss(), {batch.loss_config().begin(), batch.loss_config().end()});
  if (!v1::LossReduction_IsValid(batch.reduction()))
    base::refuse_field("reduction", "has the unknown value {}",
                       static_cast<int>(batch.reduction()));
  base::check_count("tokens", batch.tokens(), 0);
  if (batch.tokens() > 0 && batch.reduction() != v1::LOSS_REDUCTION_TOKEN_MEAN)
    base::refuse_field("tokens", "{} is given, but the reduction is not token_mean",
                       batch.tokens());
  base::check_given_positive("micro_batch_size", batch.has_micro_batch_size(),
                             batch.micro_batch_size(), "that of the run");
  if (batch.has_reference()) {
    check_reference(batch, loss, limits);
    return loss;
  }
  if (batch.data().empty()) base::refuse_field("data", "is empty: give at least one datum");
  base::check_at_most("data", batch.data_size(), planner::kMostBatch);
  std::int64_t longest = 0, targets = 1;
  for (int i = 0; i < batch.data_size(); ++i) {
    DatumCheck(batch.data(i), fmt::format("data[{}]", i), loss, limits).run();
    longest = std::max<std::int64_t>(longest, batch.data(i).tokens_size());
    targets = std::max(targets, targets_per_token(batch.data(i)));
  }
  check_size_at_once(batch, batch.data_size(), longest, targets, limits);
  return loss;
}

WholeBatch whole_batch(const TokenLoss& loss, const v1::LossBatch& batch) {
  WholeBatch whole{batch.data_size(), 0, false};
  for (const v1::Datum& datum : batch.data()) {
    whole.counted_tokens += counted_tokens(loss, datum);
    whole.several_targets = whole.several_targets || targets_per_token(datum) > 1;
  }
  return whole;
}

std::vector<TokenBatch> split_batch(const v1::LossBatch& batch, const BatchSplit& split,
                                    std::int64_t rank) {
  const BatchPlan plan{split.samples, split.micro_batch_size, split.ranks};
  const bool has_all = batch.data_size() == split.samples;
  std::vector<TokenBatch> micro_batches;
  std::int64_t next = 0;
  for (std::int64_t k = 0; k < plan.micro_batches(); ++k) {
    const planner::ShardRange range = plan.of(k, rank);
    micro_batches.push_back(make_micro_batch(batch, has_all ? range.begin : next, range, split));
    next += range.size();
  }
  check_internal(has_all || next == batch.data_size(), "{} data where {} belong to the rank",
                 batch.data_size(), next);
  return micro_batches;
}

}  // namespace meshloom::train
