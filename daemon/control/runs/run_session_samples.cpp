// SPDX-License-Identifier: Apache-2.0
// RunSession and what is drawn from it: samples, and the weights that it keeps for them.
#include <algorithm>
#include <utility>

#include "daemon/base/as_error.h"
#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/runs/run_session.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

/// As it lies in memory.
std::size_t bytes_of_order(const SampleOrder& order) {
  // What follows what the sequence draws: its decoder, its part of the result.
  constexpr std::size_t kProgress = 1024;
  std::size_t bytes = sizeof order;
  for (const train::SampleStart& start : order.starts)
    bytes += sizeof start + kProgress +
             (start.prompt.capacity() + start.end_tokens.capacity()) * sizeof(std::int64_t) +
             start.params.SpaceUsedLong() + start.stop.SpaceUsedLong();
  for (const std::string& text : order.stop_strings)
    bytes += order.starts.size() * (sizeof text + text.capacity());
  return bytes;
}

}  // namespace

std::optional<train::PromptLimits> RunSession::prompt_limits() const {
  const std::lock_guard lock(mutex_);
  check_not_ended_locked();
  if (run_.state() != v1::RUN_STATE_READY) return std::nullopt;
  return limits_;
}

void RunSession::check_sample(const SampleOrder& order) const {
  const std::int64_t step =
      order.origin.snapshot.empty()
          ? run_.step()
          : weights_.drawn(weights_resource(id_, order.origin.snapshot)).step();
  if (order.weights_step && *order.weights_step != step)
    throw stale_weights(*order.weights_step, step);
  const std::int64_t longest = run_.resolved().training().seq_len();
  for (const train::SampleStart& start : order.starts) {
    const auto prompt = static_cast<std::int64_t>(start.prompt.size());
    std::int64_t whole = prompt + start.params.max_tokens();
    if (!start.params.past_context()) whole = std::min(whole, limits_.context_length + 1);
    const std::int64_t scored = order.exact_log_probs ? whole : order.prompt_log_probs ? prompt : 0;
    if (longest > 0 && scored - 1 > longest)
      base::refuse_field(order.exact_log_probs ? "exact_logprobs" : "prompt_logprobs",
                         "needs Forward of {} tokens, more than the run's training.seq_len of {}",
                         scored - 1, longest);
  }
}

void RunSession::hold_memory(SampleOrder& order) {
  const v1::RunConfig resolved = this->resolved();
  order.memory = world_.admission.hold_cache(
      cache_need(world_.admission.prompt_limits(resolved), order.starts));
  if (order.origin.snapshot.empty()) return;
  RunWeights::Drawn drawn = weights_.hold(order.origin.snapshot, resolved);
  order.origin = std::move(drawn.origin);
  order.snapshot_memory = std::move(drawn.memory);
}

v1::Operation RunSession::add_sample(std::int64_t epoch,
                                     const std::shared_ptr<SampleProgress>& progress) {
  const std::string name = operation_name(id_, epoch, fmt::format("sample-{}", next_sample_++));
  return world_.operations.add(id_, name, "sample", progress);
}

v1::Operation RunSession::sample(std::int64_t epoch, SampleOrder order) {
  const auto progress = RunSample::make_progress(order);
  {
    const std::lock_guard lock(mutex_);
    check_open(epoch);
    if (run_.state() != v1::RUN_STATE_READY) {
      WaitingMemory::Hold memory = hold_waiting(order);
      v1::Operation operation = add_sample(epoch, progress);
      waiting_samples_.push_back(
          {epoch, operation.name(), std::move(order), progress, std::move(memory)});
      return operation;
    }
    check_sample(order);
  }
  hold_memory(order);
  v1::Operation operation;
  {
    const std::lock_guard lock(mutex_);
    check_open(epoch);
    operation = add_sample(epoch, progress);
  }
  begin_sample(epoch, operation.name(), std::move(order), progress);
  return operation;
}

void RunSession::begin_sample(std::int64_t epoch, const std::string& operation, SampleOrder order,
                              const std::shared_ptr<SampleProgress>& progress) {
  order.lost_with_run = [session = weak_from_this(), epoch,
                         operation](const std::exception_ptr& error) {
    const auto run = session.lock();
    return run && run->take_lost_sample(epoch, operation, error);
  };
  try {
    RunSample::start(world_.scheduler, world_.operations, id_, operation, std::move(order),
                     progress);
  } catch (...) {
    world_.operations.fail(operation, to_details(std::current_exception()));
    throw;
  }
}

WaitingMemory::Hold RunSession::hold_waiting(const SampleOrder& order) {
  const std::size_t bytes = bytes_of_order(order);
  try {
    return world_.waiting.take(id_, client_, bytes);
  } catch (const ResourceExhausted&) {
    // Those that were cancelled make room.
    const std::size_t cancelled = std::erase_if(waiting_samples_, [&](const WaitingSample& sample) {
      return !world_.operations.is_open(sample.operation);
    });
    if (cancelled == 0) throw;
  }
  return world_.waiting.take(id_, client_, bytes);
}

void RunSession::begin_waiting_samples() {
  std::vector<WaitingSample> samples;
  {
    const std::lock_guard lock(mutex_);
    samples.swap(waiting_samples_);
  }
  for (WaitingSample& sample : samples) {
    if (!world_.operations.is_open(sample.operation)) continue;  // it was cancelled
    try {
      if (world_.stopping) throw Unavailable("the daemon is stopping", "STOPPING");
      {
        const std::lock_guard lock(mutex_);
        check_open(sample.epoch);
        check_sample(sample.order);
      }
      hold_memory(sample.order);
      begin_sample(sample.epoch, sample.operation, std::move(sample.order), sample.progress);
    } catch (...) {
      world_.operations.fail(sample.operation, to_details(std::current_exception()));
    }
  }
}

bool RunSession::take_lost_sample(std::int64_t epoch, const std::string& operation,
                                  const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (world_.stopping) return false;
  if (has_ended() || end_) {
    if (!error) return false;
    // The ranks have let the run go: what they say of it is no cause.
    world_.operations.fail(operation, to_details(closed_error()));
    return true;
  }
  if (epoch < run_.epoch()) {
    world_.operations.fail(
        operation,
        to_details(recovered_error(fmt::format("epoch {} has ended", epoch), queue_.next_new())));
    return true;
  }
  if (!error || !loses_run(error)) return false;
  if (!lost_) lost_ = base::as_error(error);
  lost_samples_.push_back(operation);
  changed_.notify_all();
  return true;
}

void RunSession::fail_lost_samples(const Error& error) {
  const v1::ErrorDetails details = to_details(error);
  for (const WaitingSample& sample : std::exchange(waiting_samples_, {}))
    world_.operations.fail(sample.operation, details);
  for (const std::string& operation : std::exchange(lost_samples_, {}))
    world_.operations.fail(operation, details);
}

}  // namespace meshloom::control
