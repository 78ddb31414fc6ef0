// SPDX-License-Identifier: Apache-2.0
// RunLifecycle: the state of a run, its epoch and its end, and its record in the journal.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/control/runs/run_parts.h"
#include "daemon/control/runs/run_sample.h"
#include "daemon/control/stores/notes.h"
#include "kernels/base/error.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// It is thread safe and takes its own mutexes. The parts of the run are called with the one by
/// which the state is read, so that a verb or a sample is taken in the epoch that it was checked
/// in; RunStore is given the record without it.
class RunLifecycle final : public SampledRun {
 public:
  static constexpr const char* kLeaseEnded = "LEASE_ENDED";
  static constexpr const char* kStateDamaged = "STATE_DAMAGED";
  static constexpr const char* kNotSaved = "its last state was not saved: ";

  /// The record is durable already; after a restart of the daemon restarted() has made it.
  RunLifecycle(RunParts& parts, v1::RunRecord record);

  /// Returns what a record becomes when the daemon that wrote it has ended: the next epoch of a run
  /// that has not ended, from `newest`, the last of its saved states that can be read.
  static v1::RunRecord restarted(v1::RunRecord record, const std::optional<v1::SavedState>& newest);

  /// Nothing of the run changes while one is there. Whoever has one calls no other method of it
  /// but closed_error().
  class Locked {
   public:
    const v1::Run& run() const { return life_.run_; }
    const train::PromptLimits& limits() const { return life_.limits_; }
    bool ending() const { return life_.end_.has_value(); }
    /// Throws FailedPrecondition (LEASE_ENDED, RUN_CLOSED) for a run that has ended or is about
    /// to, and Unavailable (LEASE_ENDING) until the state is saved that the former names.
    void check_not_ended() const { life_.check_not_ended(); }
    /// Throws as check_not_ended, and Aborted (RUN_RECOVERED) for an earlier epoch, InvalidArgument
    /// (EPOCH_UNKNOWN) for one that has not begun.
    void check_open(std::int64_t epoch) const { life_.check_open(epoch); }
    RunSamples::Model sampled_model() const;
    void wake() const { life_.changed_.notify_all(); }  ///< as RunLifecycle::wake

   private:
    friend class RunLifecycle;
    explicit Locked(const RunLifecycle& life) : life_(life), lock_(life.mutex_) {}
    const RunLifecycle& life_;
    const std::lock_guard<std::mutex> lock_;
  };
  Locked lock() const { return Locked(*this); }

  bool ended() const;   ///< CLOSED or FAILED
  bool queued() const;  ///< waits for the ranks
  /// Throws FailedPrecondition (TOKEN_INVALID) unless it is the run's token.
  void check_token(const std::string& token) const;
  void replace_token(const std::string& digest);
  /// Lets `with` look at the run, or no more.
  void share(const std::string& with, bool take_back);
  /// Throws Aborted (RUN_RECOVERED) for an earlier epoch.
  void explain_lost(std::int64_t epoch) const;
  // RunSession says what these do.
  void close(const std::optional<Error>& cause);
  void give_up(const Error& cause);
  void drain();
  /// wait_for_next() looks again.
  void wake() const;
  /// Its record is written no more.
  void forget();
  bool end_lost_sample(std::int64_t epoch, const std::string& operation,
                       const std::exception_ptr& error) override;

  // --- For the thread that drives the run, and the one that collects answers.
  /// False for a run that has ended or is about to.
  bool begin_driving();
  void set_state(v1::RunState state);
  /// The ranks have the run.
  void set_made(const v1::CreateRunResult& made);
  /// Says why the run ends, unless that is known.
  void set_cause(const Error& cause);
  void add_note(const std::string& note);
  /// The ranks have lost what they had of it: the first error becomes the cause.
  void lose(const std::exception_ptr& error);
  /// Begins the next epoch if a state is left that can be read. What waits fails.
  void skip_damaged(const Error& cause);
  void set_step(std::int64_t step);
  enum class Act { kStart, kMake, kSave, kEnd };
  struct Next {
    Act act = Act::kEnd;
    VerbQueue::Taken taken = {};  ///< of kStart
    std::int64_t epoch = 0;       ///< of kStart
  };
  /// Waits until there is something to do. Where the run was lost its next epoch has begun, and it
  /// is to be made anew.
  Next wait_for_next();
  /// Ends what kSave has begun.
  void end_drain(bool saved);
  struct Ending {
    bool closed = false;  ///< else the daemon stops, or the run cannot be made
    bool save = false;
    bool lost = false;
  };
  Ending ending() const;
  void end_saving();  ///< nothing more is to be saved
  void end_as(v1::RunState state);
  Error closed_error() const;  ///< of what had not ended

 private:
  struct End {
    bool save = false;  ///< first
  };

  void persist();  ///< without the mutexes

  // The mutex is held.
  bool has_ended() const { return control::has_ended(run_); }
  void note(const std::string& text) { keep_newest_note(text, run_.mutable_notes()); }
  void check_not_ended() const;
  void check_open(std::int64_t epoch) const;
  void begin_epoch(const Error& cause);
  /// The run goes on with number `next`.
  Error recovered_error(const std::string& cause, std::int64_t next) const;

  RunParts& parts_;
  std::mutex persist_mutex_;  ///< taken before the other
  bool forgotten_ = false;    ///< by persist_mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  v1::RunRecord record_;
  v1::Run& run_;  ///< of record_; its weights are with the parts
  train::PromptLimits limits_;
  std::optional<Error> lost_;  ///< what the run held on the ranks is lost
  std::optional<End> end_;     ///< it is to end
  bool draining_ = false;      ///< nothing is begun before it is saved
  bool driven_ = false;        ///< the ranks may know of it
};

}  // namespace meshloom::control
