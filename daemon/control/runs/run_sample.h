// SPDX-License-Identifier: Apache-2.0
// RunSample: sequences that are drawn from a run, as one operation.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/memory_units.h"
#include "daemon/control/host/wakeable.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_snapshot.h"
#include "daemon/train/config/sample_start.h"
#include "kernels/base/error.h"

namespace meshloom::control {

/// The run that a sample is drawn from.
class SampledRun {
 public:
  virtual ~SampledRun() = default;
  /// A sample asks before its operation of an epoch ends, with the error if there is one. True if
  /// the run ends it instead, since what it was to be drawn from is lost. Any thread may call it;
  /// it takes the run's mutex.
  virtual bool end_lost_sample(std::int64_t epoch, const std::string& operation,
                               const std::exception_ptr& error) = 0;
};

/// What a client wants of a run's weights.
struct SampleOrder {
  std::vector<train::SampleStart> starts;                      ///< one for each sequence
  int samples = 1;                                             ///< of each prompt
  bool text = false;                                           ///< the model's tokens are bytes
  std::shared_ptr<const text::Tokenizer> tokenizer = nullptr;  ///< else: makes them text
  std::vector<std::string> stop_strings;                       ///< in the text of each sequence
  std::optional<std::int64_t> weights_step;
  RunClient::SampleOrigin origin;  ///< a snapshot of the run, and its folder where it is on disk
  // What is run through Forward once all is drawn.
  bool prompt_log_probs = false, exact_log_probs = false;
  // Held until it has drawn.
  MemoryUnits memory = {};                                 ///< of keys and values
  std::shared_ptr<const RunSnapshot> snapshot = nullptr;   ///< the weights in memory
  std::shared_ptr<const SnapshotMemory> loaded = nullptr;  ///< of weights on disk
  // Set by the run: itself, and the epoch that the sample is of.
  std::weak_ptr<SampledRun> run = {};
  std::int64_t epoch = 0;
};

/// Of a sample that was to be drawn from the weights of `wanted` steps.
Error stale_weights(std::int64_t wanted, std::int64_t step);

/// Lives until the ranks know nothing more of it.
class RunSample final : public Wakeable, public SampleScorer {
 public:
  /// Progress for the operation of an order.
  static std::shared_ptr<SampleProgress> make_progress(const SampleOrder& order);
  /// Throws what SampleScheduler::start throws.
  static void start(SampleScheduler& scheduler, Operations& operations, const std::string& run,
                    const std::string& operation, SampleOrder order,
                    std::shared_ptr<SampleProgress> progress);

 private:
  RunSample(Operations& operations, std::string operation, SampleOrder order,
            std::shared_ptr<SampleProgress> progress);
  /// Takes what was drawn; ends the operation after the last token.
  void wake() override;
  /// Under the mutex. Throws what SampleProgress::add throws.
  void add(const DrawnToken& token);
  void end(const std::exception_ptr& error);
  /// Prompts, then prompts with what was drawn, as far as the order asks for them.
  v1::LossBatch to_score() const override;
  void take_scores(const v1::LossOutput& output) override;
  /// Prompts that have more than one token, by index: the first of their sequences.
  std::vector<std::size_t> scored_prompts() const;

  Operations& operations_;
  const std::string operation_;
  const SampleOrder order_;
  const std::shared_ptr<SampleProgress> progress_;
  std::mutex mutex_;
  std::optional<std::int64_t> other_step_;  ///< of weights that were not asked for
  std::shared_ptr<TokenChannel> channel_;
  std::shared_ptr<RunSample> self_;  ///< until it has ended
};

}  // namespace meshloom::control
