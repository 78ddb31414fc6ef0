// SPDX-License-Identifier: Apache-2.0
// RankWorker: carries out commands on one rank's runs, and the loop that takes them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "daemon/comm/training_pulse.h"
#include "daemon/control/ranks/command_queue.h"
#include "daemon/control/ranks/run_factory.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/train/run/sampler.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Used by the rank's training thread alone. Runs and models are destroyed with it.
class RankWorker {
 public:
  /// `sources` and `stops` are rank 0's; the other ranks draw nothing and follow it. They outlive
  /// the worker.
  RankWorker(int rank, RunFactory& factory, const SourceCache* sources = nullptr,
             CommandStops* stops = nullptr);
  ~RankWorker();

  /// Never throws: errors are part of the result. After a failed gradient or optimizer step a job's
  /// run refuses every verb but delete_run (FAILED_PRECONDITION, RUN_FAILED), so that commands
  /// already on their way do no harm. The same holds for all training runs once a rank has failed
  /// alone; from then on to the recover command nothing is begun that needs other ranks
  /// (FAILED_PRECONDITION, RANKS_RECOVERING), since they may still be busy with earlier commands.
  /// A verb that all ranks ended alike stops nothing.
  v1::RankResult execute(const v1::RankCommand& command);

 private:
  struct LiveRun {
    std::unique_ptr<train::Run> run;
    bool of_job = false;  ///< it has data of its own, and ends with a step that fails
    std::string failure = {};
  };
  struct LiveSample {
    std::string run;                         ///< empty: of a source
    std::shared_ptr<train::Sampler> source;  ///< null on other ranks
    std::unique_ptr<train::Sample> sample;   ///< null if nothing is drawn on this rank
    train::RunSample* of_run = nullptr;      ///< the same, if it is of a run
  };

  void recover(const v1::RecoverCommand& command);
  /// Throws if the ranks have recovered and the recover command has not come yet.
  void check_recovered() const;
  /// After an error of one rank alone: what runs hold is undefined.
  void spoil_runs(const std::string& failure);
  void dispatch(const v1::RankCommand& command, v1::RankResult* result);
  /// A verb that all ranks of a run take part in: it ends alike on all of them.
  void carry_out(const v1::RankCommand& command, v1::RankResult* result);
  /// After a verb that failed: what its run says where it cannot go on.
  [[noreturn]] void fail_verb(LiveRun& target, const v1::RankCommand& command);
  void create_run(const v1::CreateRunCommand& command, v1::CreateRunResult* result);
  void delete_run(const std::string& name);
  void begin_sample(const v1::SampleCommand& command);
  LiveSample& live_sample(std::int64_t number);
  void advance_sample(const v1::AdvanceSampleCommand& command, v1::AdvanceSampleResult* result);
  void score_sample(const v1::ScoreSampleCommand& command, v1::LossOutput* result);
  LiveRun& live(const std::string& name);

  const int rank_;
  RunFactory& factory_;
  const SourceCache* sources_;
  CommandStops* const stops_;
  std::int64_t seq_ = 0;  ///< of the command that is carried out
  std::int64_t epoch_ = 0;
  std::uint64_t recoveries_ = 0;  ///< after which the ranks were in step
  std::string last_failure_;      ///< of a rank alone
  std::map<std::string, LiveRun> runs_;
  std::map<std::int64_t, LiveSample> samples_;  ///< end before their runs
};

enum class LoopEnd {
  kStopped,    ///< a stop command came
  kClosed,     ///< the queue was closed: the daemon has failed
  kOutOfStep,  ///< this rank failed in a way that leaves the ranks out of step
};

/// The loop of a rank's training thread. Takes commands, marks them in `pulse` if it is not null,
/// and hands each result over. Returns only at the end.
LoopEnd run_commands(CommandQueue& queue, RankWorker& worker, ResultSink& results,
                     comm::TrainingPulse* pulse = nullptr);

}  // namespace meshloom::control
