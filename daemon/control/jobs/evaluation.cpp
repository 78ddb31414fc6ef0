// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "daemon/control/ranks/rank_messages.h"
#include "daemon/train/run/run.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPart{100};

}  // namespace

v1::DataLoss EvaluationParts::next() {
  const auto begin = Clock::now();
  const std::int64_t count = std::min(at_once_, most_ - batches_);
  v1::DataLoss part = run_.loss({set_, batches_, count}).get();
  batches_ += part.losses_size();
  data_ended_ = part.losses_size() < count;
  if (Clock::now() - begin < kPart / 2) at_once_ *= 2;
  return part;
}

v1::Evaluation Evaluation::evaluate(std::int64_t batches, const Progress& progress) {
  EvaluationParts parts(run_, batches > 0 ? batches : std::numeric_limits<std::int64_t>::max());
  train::LossSum sum;
  v1::EvaluateProgress done;
  double seconds = 0;
  while (!parts.done()) {
    const auto begin = Clock::now();
    const v1::DataLoss part = parts.next();
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    for (const v1::BatchLoss& batch : part.losses()) {
      sum.loss += batch.loss();
      sum.labels += batch.labels();
      sum.bytes += batch.bytes();
      sum.tokens += batch.tokens();
    }
    done.set_batches(done.batches() + part.losses_size());
    done.set_tokens(static_cast<std::int64_t>(sum.labels));
    done.set_computed_tokens(static_cast<std::int64_t>(sum.tokens));
    if (sum.labels > 0) done.set_loss(sum.loss / sum.labels);
    if (const auto bits = train::bits_per_byte({&sum, 1})) done.set_bits_per_byte(*bits);
    if (parts.data_ended()) break;
    progress(done);
  }
  v1::Evaluation result;
  result.set_loss(train::mean_loss({&sum, 1}));
  result.set_perplexity(std::exp(result.loss()));
  if (done.has_bits_per_byte()) result.set_bits_per_byte(done.bits_per_byte());
  result.set_tokens(done.tokens());
  result.set_computed_tokens(done.computed_tokens());
  result.set_batches(done.batches());
  result.set_seconds(seconds);
  if (seconds > 0) result.set_tokens_per_second(sum.tokens / seconds);
  return result;
}

v1::Evaluation Evaluation::carry_out(const Work& work, const Progress& progress) {
  v1::CreateRunCommand create;
  *create.mutable_config() = work.config;
  set_folders({work.data_dir, work.model_folder, work.tokenizer_folder}, create.mutable_folders());
  create.set_with_data(true);
  set_tokenized(work.text, &create);
  struct Made {
    const RunClient& run;
    ~Made() {
      try {
        run.remove().get();
      } catch (const std::exception& error) {
        spdlog::warn("the run of an evaluation was not deleted: {}", error.what());
      }
    }
  } const made{run_};
  const v1::CreateRunResult created = run_.create(std::move(create)).get();
  for (const std::string& note : created.notes()) spdlog::warn("evaluation: {}", note);
  v1::Evaluation result = evaluate(work.batches, progress);
  result.set_dtype(work.config.plan().dtype());
  result.set_device(work.config.device());
  result.set_seq_len(work.config.training().seq_len());
  result.set_global_batch_size(work.config.training().global_batch_size());
  *result.mutable_mesh() = work.config.mesh();
  return result;
}

}  // namespace meshloom::control
