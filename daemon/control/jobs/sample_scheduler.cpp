// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/sample_scheduler.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;

std::exception_ptr stopping_error() {
  return std::make_exception_ptr(Unavailable("the daemon is stopping", "STOPPING"));
}

}  // namespace

v1::RankCommand begin_sample_command(std::int64_t sample, const SampleTask& task) {
  v1::RankCommand command;
  auto& verb = *command.mutable_sample();
  verb.set_sample(sample);
  verb.set_run(task.run);
  verb.set_source(task.source);
  for (const train::SampleStart& start : task.sequences) {
    v1::SampleSequence& sequence = *verb.add_sequences();
    sequence.mutable_token_ids()->Add(start.prompt.begin(), start.prompt.end());
    *sequence.mutable_params() = start.params;
    sequence.set_drawn_before(static_cast<std::int64_t>(start.drawn_before));
  }
  return command;
}

v1::RankCommand advance_sample_command(std::int64_t sample, const std::string& run) {
  v1::RankCommand command;
  command.mutable_advance_sample()->set_sample(sample);
  command.mutable_advance_sample()->set_run(run);
  command.mutable_advance_sample()->set_budget_ms(kSampleSlice.count());
  return command;
}

v1::RankCommand end_sample_command(std::int64_t sample) {
  v1::RankCommand command;
  command.mutable_end_sample()->set_sample(sample);
  return command;
}

SampleScheduler::SampleScheduler(Executor& executor, double share, std::function<bool()> trains)
    : executor_(executor), trains_(std::move(trains)), share_(share), thread_([this] { run(); }) {}

SampleScheduler::~SampleScheduler() {
  stop();
  thread_.join();
}

void SampleScheduler::start(SampleTask task, std::shared_ptr<TokenChannel> channel) {
  const std::lock_guard lock(mutex_);
  if (stopping_) std::rethrow_exception(stopping_error());
  auto sample = std::make_shared<Sample>();
  sample->number = next_number_++;
  sample->task = std::move(task);
  sample->channel = std::move(channel);
  waiting_.push_back(std::move(sample));
  changed_.notify_all();
}

void SampleScheduler::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (const auto& sample : waiting_) sample->channel->end(stopping_error());
  waiting_.clear();
  changed_.notify_all();
}

void SampleScheduler::run() {
  while (true) {
    const std::vector<SamplePtr> turns = next_turns();
    if (turns.empty()) return;
    for (const Slice& slice : submit(turns)) collect(slice);
    requeue(turns);
  }
}

void SampleScheduler::wait_for_room(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::milliseconds kLookUp{50};  // whether the job has ended
  while (!stopping_ && trains_()) {
    const auto now = Clock::now();
    const auto room = share_.next(slice_time_, now);
    if (room <= now) return;
    changed_.wait_until(lock, std::min(room, now + kLookUp), [&] { return stopping_; });
  }
}

std::vector<SampleScheduler::SamplePtr> SampleScheduler::next_turns() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
  wait_for_room(lock);
  std::vector<SamplePtr> turns;
  if (stopping_) return turns;
  const std::size_t slices =
      trains_() ? static_cast<std::size_t>(std::max(share_.fitting(slice_time_, Clock::now()), 1))
                : 1;
  const std::size_t samples = std::min(slices, waiting_.size());
  for (std::size_t i = 0; i < slices; ++i) turns.push_back(waiting_[i % samples]);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(samples));
  return turns;
}

std::vector<SampleScheduler::Slice> SampleScheduler::submit(const std::vector<SamplePtr>& turns) {
  std::vector<Slice> slices;
  for (const SamplePtr& sample : turns) {
    if (sample->over) continue;
    if (sample->channel->left()) {
      sample->over = true;
      continue;
    }
    try {
      Slice slice{sample, nullptr, nullptr};
      if (!sample->begun)
        slice.begin = executor_.submit(begin_sample_command(sample->number, sample->task));
      sample->begun = true;
      slice.advance = executor_.submit(advance_sample_command(sample->number, sample->task.run));
      slices.push_back(std::move(slice));
    } catch (...) {
      sample->over = true;
      sample->error = std::current_exception();
    }
  }
  return slices;
}

void SampleScheduler::collect(const Slice& slice) {
  Sample& sample = *slice.sample;
  try {
    if (slice.begin) executor_.wait(slice.begin);
    const v1::RankResult result = executor_.wait(slice.advance);
    const auto seconds = result.seconds().find("sample");
    if (seconds != result.seconds().end()) {
      const auto time = std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(seconds->second));
      share_.spent(time, Clock::now());
      // A slow one counts for a while, so that several at once take no longer than was thought.
      slice_time_ = std::max<Clock::duration>({kSampleSlice, time, (slice_time_ * 7 + time) / 8});
    }
    for (const v1::SampledToken& token : result.sampled())
      sample.channel->token({token.token_id(), result.step_count(),
                             static_cast<std::size_t>(token.sequence()), token.last()});
    if (result.sample_done()) sample.over = true;
  } catch (...) {
    if (!sample.over) sample.error = std::current_exception();
    sample.over = true;
  }
}

void SampleScheduler::requeue(const std::vector<SamplePtr>& turns) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const SamplePtr& sample = turns[i];
    if (i > 0 && sample == turns[0]) return;  // from here on the turns repeat
    if (!sample->over && stopping_) sample->error = stopping_error();
    if (sample->over || stopping_)
      end(*sample);
    else
      waiting_.push_back(sample);
  }
}

void SampleScheduler::end(const Sample& sample) noexcept {
  try {
    if (sample.begun) executor_.submit(end_sample_command(sample.number));
  } catch (const std::exception& error) {
    // The ranks stop, which ends it as well.
    spdlog::debug("sample {} was not ended: {}", sample.number, error.what());
  }
  sample.channel->end(sample.error);
}

}  // namespace meshloom::control
