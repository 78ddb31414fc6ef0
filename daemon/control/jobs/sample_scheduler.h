// SPDX-License-Identifier: Apache-2.0
// SampleScheduler: samples as short commands between the steps of a job.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/host/daemon_service.h"
#include "daemon/control/jobs/time_share.h"
#include "daemon/control/jobs/token_channel.h"
#include "daemon/control/ranks/run_client.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/run/run.h"

namespace meshloom::control {

/// Who wants what was drawn to be run through Forward. The scheduler's thread calls it.
class SampleScorer {
 public:
  virtual ~SampleScorer() = default;
  /// What Forward is to compute, once all is drawn.
  virtual v1::LossBatch to_score() const = 0;
  /// Its output, before the channel ends.
  virtual void take_scores(const v1::LossOutput& output) = 0;
};

/// What to draw from: a run of the ranks, or a source that rank 0 has loaded.
struct SampleTask {
  std::string run;
  RunClient::SampleOrigin origin;
  std::vector<train::SampleStart> sequences;
  /// A run that a client drives may have one; null: nothing is scored.
  std::shared_ptr<SampleScorer> scorer = nullptr;
};

/// A sample draws for about as long; one pass of its model may take longer.
inline constexpr std::chrono::milliseconds kSampleSlice{50};

/// Who knows whether a job has the ranks. Any thread may ask.
class Training {
 public:
  virtual ~Training() = default;
  virtual bool busy() const = 0;
};

/// Samples take turns, a slice each, of however many sequences they are. While a job trains, as
/// many slices as its share of the time allows go to the ranks at once, since each waits for a step
/// of the job to end; the next ones go when those are done. Without a job slices follow each other.
class SampleScheduler final : public DaemonService {
 public:
  using DaemonService::start;

  /// `training` outlives it.
  SampleScheduler(Executor& executor, double share, const Training& training);
  ~SampleScheduler();
  SampleScheduler(const SampleScheduler&) = delete;
  SampleScheduler& operator=(const SampleScheduler&) = delete;

  /// Any thread. Throws Unavailable (STOPPING) after request_stop().
  void start(SampleTask task, std::shared_ptr<TokenChannel> channel);
  /// All samples end (Unavailable, STOPPING) and no slice is begun. Does not wait.
  void request_stop() override;

 private:
  struct Sample {
    std::int64_t number = 0;
    SampleTask task;
    std::shared_ptr<TokenChannel> channel;
    bool begun = false;
    bool drawn = false;  ///< all of it
    bool over = false;
    std::exception_ptr error;  ///< that it is over with
  };
  using SamplePtr = std::shared_ptr<Sample>;
  struct Slice {
    SamplePtr sample;
    std::optional<Answer<void>> begin;  ///< unless it was begun before
    std::optional<Answer<v1::AdvanceSampleResult>> advance;
    std::optional<Answer<v1::LossOutput>> score;  ///< instead of the two
  };

  void run();
  /// Waits until slices fit in. Returns the samples whose turns they are, one for each slice; none
  /// at the end.
  std::vector<SamplePtr> next_turns();
  std::vector<Slice> submit(const std::vector<SamplePtr>& turns);
  Slice submit_one(const SamplePtr& sample);
  void collect(const Slice& slice);
  void collect_tokens(Sample& sample, const v1::AdvanceSampleResult& result);
  /// Samples that are over leave, the others queue again, in the order of their turns.
  void requeue(const std::vector<SamplePtr>& turns);
  void end(const Sample& sample) noexcept;

  Executor& executor_;
  const Training& training_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SamplePtr> waiting_;
  std::int64_t next_number_ = 1;  ///< 0 is the job's own sample
  bool stopping_ = false;
  TimeShare share_;  ///< the scheduler's thread alone, as what follows
  std::chrono::steady_clock::duration slice_time_ = kSampleSlice;  ///< the longest of late
  std::thread thread_;
};

}  // namespace meshloom::control
