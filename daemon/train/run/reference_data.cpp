// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/reference_data.h"

#include <algorithm>
#include <array>

#include "daemon/base/field_error.h"
#include "daemon/comm/agreement/given_agreement.h"
#include "daemon/comm/agreement/rank_values.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/loss/batch_parts.h"
#include "daemon/train/run/reference_text.h"
#include "daemon/train/run/replica_check.h"

namespace meshloom::train {
namespace {

constexpr const char* kField = kReferenceField;
constexpr std::size_t kMostOpened = 8;  // of a run at once

/// A row of what a loader gives, as a client would have sent it.
v1::Datum datum_of(const TokenBatch& host, std::int64_t row) {
  v1::Datum datum;
  const auto begin = row * host.length, end = begin + host.length;
  const auto label = host.labels.begin();
  const bool all_count = std::find(label + begin, label + end, kIgnoredLabel) == label + end;
  for (std::int64_t t = begin; t < end; ++t) {
    const auto at = static_cast<std::size_t>(t);
    datum.add_tokens(static_cast<std::int32_t>(host.inputs[at]));
    datum.add_targets(static_cast<std::int32_t>(host.labels[at]));
    if (!all_count) datum.add_weights(host.labels[at] == kIgnoredLabel ? 0.0f : 1.0f);
    if (!host.documents.empty())
      datum.add_document_ids(static_cast<std::int32_t>(host.documents[at]));
    if (!host.positions.empty())
      datum.add_position_ids(static_cast<std::int32_t>(host.positions[at]));
  }
  return datum;
}

void check_fits(const v1::DataReference& reference, const Dataset& dataset,
                const v1::DataIdentity& identity) {
  if (reference.data().has_identity())
    check_same_data(reference.data().identity(), identity, reference.data().allow_changed(),
                    "reference.data.identity");
  if (reference.first_sample() > dataset.size() - reference.samples())
    throw OutOfRange(
        fmt::format("reference: {} samples from {} on, of an epoch of {} samples of {} tokens",
                    reference.samples(), reference.first_sample(), dataset.size(),
                    dataset.options().seq_len),
        "DATA_OUT_OF_RANGE",
        {{"field", "reference.first_sample"}, {"samples", std::to_string(dataset.size())}});
}

}  // namespace

ReferenceData::ReferenceData(v1::RunConfig config, nn::ModelConfig model,
                             std::filesystem::path data_dir, base::Disk& disk)
    : config_(std::move(config)),
      model_(std::move(model)),
      data_dir_(std::move(data_dir)),
      disk_(disk) {}

const ReferenceData::Opened& ReferenceData::open(const v1::DataReference& reference,
                                                 const TokenizedText& text,
                                                 comm::ProcessGroup& world) {
  v1::RunConfig config;
  *config.mutable_data() = reference.data();
  config.mutable_data()->clear_identity();
  config.mutable_training()->set_seq_len(reference.has_seq_len() ? reference.seq_len()
                                                                 : config_.training().seq_len());
  // Text that has changed has other tokens, in a file of another name.
  const std::string key = config.SerializeAsString() + text.tokens.string();
  const auto known = std::find_if(opened_.begin(), opened_.end(),
                                  [&](const Opened& item) { return item.key == key; });
  if (known != opened_.end()) return *known;
  Opened opened{key, nullptr, {}};
  run_agreed(world, [&] {
    const RunFiles files = find_run_files(config, data_dir_, kField, disk_);
    resolve_chat(*config.mutable_data(), files, kField, disk_);
    resolve_data(*config.mutable_data(), model_, kField);
    const RunData data = open_run_data(config, model_, files, kField, text, disk_);
    if (!data.training)
      throw InvalidArgument(
          fmt::format("{}.tokenizer: {} is text whose tokens were not made; send the verb again",
                      kField, reference.data().path()),
          "TOKENIZER_NEEDED", {{"field", std::string(kField) + ".tokenizer"}});
    if (data.training->size() == 0)
      base::refuse_field(std::string(kField) + ".path",
                         "{} tokens hold no sample of seq_len + 1 = {} tokens",
                         data.training->tokens(), config.training().seq_len() + 1);
    opened.dataset = data.training;
    opened.identity = data.identity;
  });
  comm::check_same_text(world, "the data below " + reference.data().path(),
                        to_json_text(opened.identity));
  if (opened_.size() == kMostOpened) opened_.pop_front();
  return opened_.emplace_back(std::move(opened));
}

void ReferenceData::read_data(const v1::DataReference& reference, const Opened& opened,
                              const BatchSplit& split, std::int64_t place,
                              v1::LossBatch& batch) const {
  const BatchLoader loader(opened.dataset, {split.samples, split.micro_batch_size, split.ranks},
                           config_.training().seed(), true);
  const std::int64_t position =
      reference.epoch() * opened.dataset->size() + reference.first_sample();
  for (const TokenBatch& host : loader.load(position, place))
    for (std::int64_t row = 0; row < host.rows; ++row) *batch.add_data() = datum_of(host, row);
}

ReferenceData::Samples ReferenceData::read(const v1::LossBatch& given, const RunMesh& mesh,
                                           const TokenizedText& text) {
  comm::ProcessGroup& world = mesh.world();
  const v1::DataReference& reference = given.reference();
  const Opened& opened = open(reference, text, world);
  Samples samples{given, {reference.samples(), 0, false}, opened.identity};
  v1::LossBatch& batch = samples.batch;
  batch.clear_reference();
  // Rank 0 also tells what became of every sample.
  const bool whole = world.rank() == 0;
  const std::int64_t micro_batch_size =
      micro_batch_size_of(batch, config_.training().micro_batch_size());
  const BatchSplit split{.samples = reference.samples(),
                         .micro_batch_size = whole ? reference.samples() : micro_batch_size,
                         .ranks = whole ? 1 : mesh.data().size()};
  std::array<double, 1> counted = {0.0};
  run_agreed(world, [&] {
    check_fits(reference, *opened.dataset, opened.identity);
    read_data(reference, opened, split, whole ? 0 : mesh.data().rank(), batch);
    if (whole)
      counted[0] =
          static_cast<double>(whole_batch(make_token_loss(batch.loss(), {}), batch).counted_tokens);
  });
  all_reduce(world, counted, comm::ReduceOp::kSum);
  samples.whole.counted_tokens = static_cast<std::int64_t>(counted[0]);
  return samples;
}

}  // namespace meshloom::train
