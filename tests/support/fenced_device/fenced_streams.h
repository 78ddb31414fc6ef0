// SPDX-License-Identifier: Apache-2.0
// FencedStreams: the work of one fenced device, which waits until the host waits or asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/fenced_device/access_records.h"
#include "tests/support/fenced_device/fenced_memory.h"
#include "tests/support/fenced_device/heap_workspace.h"

namespace meshloom::testing {

/// What the host asked of a device.
struct FencedCounts {
  std::int64_t calls = 0;  ///< that were queued, copies too
  /// How often the host had to wait: every copy_to_host, and each mark that had not come when the
  /// host waited for it or, after the device had moved on, asked for it.
  std::int64_t waits = 0;
  std::int64_t copies_from_host = 0;  ///< of both kinds
  std::int64_t copies_to_host = 0;    ///< of both kinds
};

/// A place in a stream.
struct StreamMark {
  std::size_t stream = 0;
  std::uint64_t number = 0;    ///< of the stream's last item before it
  std::uint64_t position = 0;  ///< items of all streams that the device was given before it
  VectorClock clock;           ///< all that comes before it
};

/// Runs the CPU's kernels inside of the calls that wait or ask, on the thread of the host: items of
/// one stream in their order, and streams in a random order that the waits between them allow. A
/// seed decides the order. Used by one thread at a time.
class FencedStreams {
 public:
  /// Runs a call on the CPU's backend, with the context that it is to have there.
  using Work = std::function<void(kernels::Backend& cpu, const kernels::KernelContext& context)>;

  FencedStreams(FencedMemory& memory, std::uint64_t seed);
  ~FencedStreams();
  FencedStreams(const FencedStreams&) = delete;
  FencedStreams& operator=(const FencedStreams&) = delete;

  Stream open_stream();
  /// Ends an open stream of this device. Runs everything, as finish() does.
  void end_stream(const Stream& stream) noexcept;

  /// Gives the context's stream a call. Throws InternalError where it is no open stream of this
  /// device, and where AccessRecords refuses `uses`; then nothing is queued.
  void push(const kernels::KernelContext& context, const char* call,
            std::span<const MemoryUse> uses, Work work);
  /// Returns the mark behind all that the stream was given so far.
  StreamMark mark(const Stream& stream);
  /// What the stream is given later runs when the mark has come.
  void wait_mark(const Stream& stream, const StreamMark& mark);

  bool has_come(const StreamMark& mark) const;
  /// Runs items until the mark has come. Then throws the first error of what it ran; all of that
  /// counts as done.
  void wait(const StreamMark& mark);
  /// Runs up to three items, as many as chance says, and throws as wait() does.
  void move_on();
  /// Runs everything. Keeps the first error for take_errors and prints it, since destructors call
  /// this.
  void finish() noexcept;

  /// The texts of the errors that finish() met since the last call.
  std::vector<std::string> take_errors();
  FencedCounts& counts() { return counts_; }
  kernels::Workspace& workspace() { return workspace_; }
  void set_seed(std::uint64_t seed) { random_.seed(seed); }
  /// Lets move_on() do nothing, or as much as ever.
  void set_stalled(bool stalled) { stalled_ = stalled; }

 private:
  struct Item;
  struct Queue;

  Queue& queue_of(const Stream& stream, const char* call) const;
  void append(Queue& queue, Item item);
  bool may_run(const Item& item) const;
  Queue* choose();
  void run_front(Queue& queue);
  /// Returns the first error.
  std::exception_ptr run_until(const std::function<bool()>& enough);
  void host_knows(const VectorClock& clock);

  FencedMemory& memory_;
  std::vector<std::unique_ptr<Queue>> queues_;  ///< by stream; ended ones are used again
  std::vector<Queue*> ready_;                   ///< of choose()
  AccessRecords records_;
  VectorClock host_;            ///< what the host knows to be done
  std::uint64_t position_ = 0;  ///< items that the device was given
  std::mt19937_64 random_;
  bool stalled_ = false;
  HeapWorkspace workspace_;
  FencedCounts counts_;
  std::vector<std::string> errors_;
};

}  // namespace meshloom::testing
