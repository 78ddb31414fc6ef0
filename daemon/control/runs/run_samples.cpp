// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/sample_start.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

/// Counts what lies in memory.
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

void RunSamples::check(const SampleOrder& order, const Model& model) const {
  const std::int64_t step =
      order.origin.snapshot.empty()
          ? model.step
          : parts_.weights.drawn(weights_resource(run_, order.origin.snapshot)).step();
  if (order.weights_step && *order.weights_step != step)
    throw stale_weights(*order.weights_step, step);
  for (const train::SampleStart& start : order.starts) {
    const auto prompt = static_cast<std::int64_t>(start.prompt.size());
    std::int64_t whole = prompt + start.params.max_tokens();
    if (!start.params.past_context()) whole = std::min(whole, model.context_length + 1);
    const std::int64_t scored = order.exact_log_probs ? whole : order.prompt_log_probs ? prompt : 0;
    if (model.seq_len > 0 && scored - 1 > model.seq_len)
      base::refuse_field(order.exact_log_probs ? "exact_logprobs" : "prompt_logprobs",
                         "needs Forward of {} tokens, more than the run's training.seq_len of {}",
                         scored - 1, model.seq_len);
  }
}

v1::Operation RunSamples::add_locked(const SampleOrder& order, const ProgressPtr& progress) {
  const std::string name = operation_name(run_, order.epoch, fmt::format("sample-{}", next_++));
  return parts_.operations.add(run_, name, "sample", progress);
}

v1::Operation RunSamples::add(const SampleOrder& order, const ProgressPtr& progress) {
  const std::lock_guard lock(mutex_);
  return add_locked(order, progress);
}

v1::Operation RunSamples::add_waiting(SampleOrder order, const ProgressPtr& progress) {
  const std::lock_guard lock(mutex_);
  MemoryUnits memory = hold_waiting(order);
  v1::Operation operation = add_locked(order, progress);
  waiting_.push_back({operation.name(), std::move(order), progress, std::move(memory)});
  return operation;
}

MemoryUnits RunSamples::hold_waiting(const SampleOrder& order) {
  const std::size_t bytes = bytes_of_order(order);
  try {
    return parts_.waiting.take(run_, client_, bytes);
  } catch (const ResourceExhausted&) {
    // Samples that were cancelled make room.
    const std::size_t cancelled = std::erase_if(waiting_, [&](const Waiting& sample) {
      return !parts_.operations.is_open(sample.operation);
    });
    if (cancelled == 0) throw;
  }
  return parts_.waiting.take(run_, client_, bytes);
}

std::vector<RunSamples::Waiting> RunSamples::take_waiting() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void RunSamples::hold_memory(SampleOrder& order, const v1::RunConfig& resolved) {
  order.memory = parts_.budget.hold_cache(
      cache_need(parts_.tokenization.prompt_limits(resolved), order.starts));
  if (order.origin.snapshot.empty()) return;
  RunWeights::Drawn drawn = parts_.weights.hold(order.origin.snapshot, resolved);
  order.origin = std::move(drawn.origin);
  order.snapshot = std::move(drawn.snapshot);
  order.loaded = std::move(drawn.loaded);
}

void RunSamples::begin(const std::string& operation, SampleOrder order,
                       const ProgressPtr& progress) {
  try {
    RunSample::start(parts_.scheduler, parts_.operations, run_, operation, std::move(order),
                     progress);
  } catch (...) {
    parts_.operations.fail(operation, to_details(std::current_exception()));
    throw;
  }
}

void RunSamples::add_lost(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  lost_.push_back(operation);
}

void RunSamples::fail(const Error& error) {
  std::vector<Waiting> waiting;
  std::vector<std::string> lost;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    lost.swap(lost_);
  }
  const v1::ErrorDetails details = to_details(error);
  for (const Waiting& sample : waiting) parts_.operations.fail(sample.operation, details);
  for (const std::string& operation : lost) parts_.operations.fail(operation, details);
}

}  // namespace meshloom::control
