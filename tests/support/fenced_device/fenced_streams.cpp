// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fenced_streams.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"

namespace meshloom::testing {

/// A call, or a wait for a mark: then `work` is empty.
struct FencedStreams::Item {
  Threads threads;
  Work work;
  std::size_t awaited_stream = 0;
  std::uint64_t awaited_number = 0;  ///< 0: nothing
};

struct FencedStreams::Queue {
  std::size_t stream = 0;
  bool open = true;
  std::uint64_t given = 0, done = 0;  ///< items, over all of its owners
  VectorClock clock;                  ///< all that comes before its next item
  std::deque<Item> items;             ///< those that were not run yet
};

FencedStreams::FencedStreams(FencedMemory& memory, std::uint64_t seed)
    : memory_(memory), records_(to_string(memory.device())), random_(seed) {}

FencedStreams::~FencedStreams() = default;

Stream FencedStreams::open_stream() {
  const auto ended =
      std::find_if(queues_.begin(), queues_.end(), [](const auto& queue) { return !queue->open; });
  if (ended != queues_.end()) {
    (*ended)->open = true;
    return {ended->get()};
  }
  queues_.push_back(std::make_unique<Queue>());
  queues_.back()->stream = queues_.size() - 1;
  return {queues_.back().get()};
}

void FencedStreams::end_stream(const Stream& stream) noexcept {
  finish();
  static_cast<Queue*>(stream.handle)->open = false;
}

FencedStreams::Queue& FencedStreams::queue_of(const Stream& stream, const char* call) const {
  const auto found = std::find_if(queues_.begin(), queues_.end(),
                                  [&](const auto& queue) { return queue.get() == stream.handle; });
  check_internal(found != queues_.end(), "fenced device {}: {}: a stream of another backend{}",
                 to_string(memory_.device()), call,
                 stream.handle == nullptr ? ", or none: its handle is null" : "");
  check_internal((*found)->open, "fenced device {}: {}: the stream has ended",
                 to_string(memory_.device()), call);
  return **found;
}

void FencedStreams::append(Queue& queue, Item item) {
  queue.clock.set(queue.stream, ++queue.given);
  ++position_;
  queue.items.push_back(std::move(item));
}

void FencedStreams::push(const kernels::KernelContext& context, const char* call,
                         std::span<const MemoryUse> uses, Work work) {
  Queue& queue = queue_of(context.stream, call);
  // The host gives the call behind all that it has waited for.
  queue.clock.merge(host_);
  const StreamItem item{queue.stream, queue.given + 1, call};
  records_.check(item, uses, queue.clock);
  records_.add(item, uses);
  append(queue, {context.threads, std::move(work)});
  ++counts_.calls;
}

StreamMark FencedStreams::mark(const Stream& stream) {
  const Queue& queue = queue_of(stream, "a mark");
  return {queue.stream, queue.given, position_, queue.clock};
}

void FencedStreams::wait_mark(const Stream& stream, const StreamMark& mark) {
  Queue& queue = queue_of(stream, "wait_event");
  queue.clock.merge(mark.clock);
  append(queue, {{}, nullptr, mark.stream, mark.number});
}

bool FencedStreams::has_come(const StreamMark& mark) const {
  return queues_[mark.stream]->done >= mark.number;
}

bool FencedStreams::may_run(const Item& item) const {
  return item.awaited_number == 0 || queues_[item.awaited_stream]->done >= item.awaited_number;
}

FencedStreams::Queue* FencedStreams::choose() {
  ready_.clear();
  for (const auto& queue : queues_)
    if (!queue->items.empty() && may_run(queue->items.front())) ready_.push_back(queue.get());
  return ready_.empty() ? nullptr : ready_[random_() % ready_.size()];
}

void FencedStreams::run_front(Queue& queue) {
  const Item item = std::move(queue.items.front());
  queue.items.pop_front();
  ++queue.done;
  if (item.work) item.work(kernels::cpu::cpu_backend(), {item.threads, {}, &workspace_});
}

// An error stops nothing: a copy to memory of the caller must not be left in its queue.
std::exception_ptr FencedStreams::run_until(const std::function<bool()>& enough) {
  std::exception_ptr first;
  std::optional<OpenFence> fence;
  while (!enough()) {
    Queue* const queue = choose();
    if (queue == nullptr) break;
    if (!fence) fence.emplace(memory_);
    try {
      run_front(*queue);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  return first;
}

void FencedStreams::host_knows(const VectorClock& clock) {
  host_.merge(clock);
  records_.forget(host_);
}

void FencedStreams::wait(const StreamMark& mark) {
  const std::exception_ptr error = run_until([&] { return has_come(mark); });
  check_internal(has_come(mark), "fenced device {}: all streams wait for each other",
                 to_string(memory_.device()));
  host_knows(mark.clock);
  if (error) std::rethrow_exception(error);
}

void FencedStreams::move_on() {
  if (stalled_) return;
  std::uint64_t left = random_() % 4;
  const std::exception_ptr error = run_until([&] { return left-- == 0; });
  if (error) std::rethrow_exception(error);
}

void FencedStreams::finish() noexcept {
  try {
    const std::exception_ptr error = run_until([] { return false; });
    for (const auto& queue : queues_) host_knows(queue->clock);
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fenced device %s: work that nobody waited for failed: %s\n",
                 to_string(memory_.device()).c_str(), error.what());
    errors_.emplace_back(error.what());
  }
}

std::vector<std::string> FencedStreams::take_errors() { return std::exchange(errors_, {}); }

}  // namespace meshloom::testing
