// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/sample_scheduler.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;

std::exception_ptr stopping_error() {
  return std::make_exception_ptr(Unavailable("the daemon is stopping", "STOPPING"));
}

}  // namespace

SampleScheduler::SampleScheduler(Executor& executor, double share, const Training& training)
    : executor_(executor), training_(training), share_(share), thread_([this] { run(); }) {}

SampleScheduler::~SampleScheduler() {
  request_stop();
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

void SampleScheduler::request_stop() {
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

std::vector<SampleScheduler::SamplePtr> SampleScheduler::next_turns() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
  constexpr std::chrono::milliseconds kLookUp{50};  // whether the job has ended
  while (!stopping_ && training_.busy()) {
    const auto now = Clock::now();
    const auto room = share_.next(slice_time_, now);
    if (room <= now) break;
    changed_.wait_until(lock, std::min(room, now + kLookUp), [&] { return stopping_; });
  }
  std::vector<SamplePtr> turns;
  if (stopping_) return turns;
  const std::size_t slices =
      training_.busy()
          ? static_cast<std::size_t>(std::max(share_.fitting(slice_time_, Clock::now()), 1))
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
      slices.push_back(submit_one(sample));
    } catch (...) {
      sample->over = true;
      sample->error = std::current_exception();
    }
  }
  return slices;
}

SampleScheduler::Slice SampleScheduler::submit_one(const SamplePtr& sample) {
  const RunClient run(executor_, sample->task.run);
  Slice slice{sample, {}, {}, {}};
  if (sample->drawn) {
    slice.score = run.score_sample(sample->number, sample->task.scorer->to_score());
    return slice;
  }
  if (!sample->begun)
    slice.begin = run.begin_sample(sample->number, sample->task.origin, sample->task.sequences);
  sample->begun = true;
  slice.advance =
      run.advance_sample(sample->number, kSampleSlice, sample->channel->ended_sequences());
  return slice;
}

void SampleScheduler::collect(const Slice& slice) {
  Sample& sample = *slice.sample;
  try {
    if (slice.begin) slice.begin->get();
    if (slice.advance) collect_tokens(sample, slice.advance->get());
    if (slice.score) {
      const v1::LossOutput output = slice.score->get();
      // It is over once that is taken, so that what fails there is its error.
      if (!sample.over) sample.task.scorer->take_scores(output);
      sample.over = true;
    }
  } catch (...) {
    if (!sample.over) sample.error = std::current_exception();
    sample.over = true;
  }
}

void SampleScheduler::collect_tokens(Sample& sample, const v1::AdvanceSampleResult& result) {
  if (result.seconds() > 0) {
    const auto time = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(result.seconds()));
    share_.spent(time, Clock::now());
    // A slow one counts for a while, so that several at once take no longer than was thought.
    slice_time_ = std::max<Clock::duration>({kSampleSlice, time, (slice_time_ * 7 + time) / 8});
  }
  for (const v1::SampledToken& token : result.tokens())
    sample.channel->token({token.token_id(), result.weights_step(),
                           static_cast<std::size_t>(token.sequence()), token.finish_reason(),
                           token.logprob(), token.tempered_logprob()});
  if (!result.done()) return;
  sample.drawn = true;
  if (!sample.task.scorer) sample.over = true;
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
    if (sample.begun) RunClient(executor_, sample.task.run).end_sample(sample.number);
  } catch (const std::exception& error) {
    // The ranks stop, which ends it as well.
    spdlog::debug("sample {} was not ended: {}", sample.number, error.what());
  }
  sample.channel->end(sample.error);
}

}  // namespace meshloom::control
