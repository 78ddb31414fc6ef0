// SPDX-License-Identifier: Apache-2.0
// Machine: the emulated devices of this process with their streams, and the order in which their
// work runs.
#pragma once

#include <driver_types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/device_memory.h"
#include "tests/support/cuda_emulator/fault.h"
#include "tests/support/cuda_emulator/pinned_memory.h"
#include "tests/support/cuda_emulator/work_history.h"

namespace meshloom::emulator {

struct EmulatedDevice;

/// A place in a stream that an event marked.
struct StreamMark {
  bool come = false;
  Clock clock;                               ///< of all before it, once it has come
  std::chrono::steady_clock::time_point at;  ///< when it came
};

/// What a stream was given: work, or a mark that it sets, or one that it waits for.
struct Item {
  WorkName name;
  Position position = 0;
  std::shared_ptr<const Clock> host;  ///< what the host knew to be done
  std::function<void(EmulatedDevice&)> work;
  std::shared_ptr<StreamMark> sets;
  std::shared_ptr<StreamMark> awaits;
};

struct EmulatedDevice {
  explicit EmulatedDevice(int number) : index(number), memory(number) {}

  int index;
  DeviceMemory memory;
  WorkHistory history;
  std::vector<CUstream_st*> streams;  ///< that are open
  /// What every call for the device gives from then on, until take_faults().
  std::optional<Fault> fault;
};

/// Every function of the runtime holds `mutex`; the rest is used under it. Ranks that are threads
/// have a device each: one of them runs at a time.
class Machine {
 public:
  std::mutex mutex;

  EmulatedDevice& device(int index);
  /// Asks those that exist so far.
  EmulatedDevice* device_at(const void* address);
  PinnedMemory& pinned() { return pinned_; }

  CUstream_st* open_stream(EmulatedDevice& device);
  /// Runs what the stream was given.
  void close_stream(CUstream_st* stream);
  bool is_open(CUstream_st* stream) const { return streams_.contains(stream); }

  void give(CUstream_st& stream, WorkName name, std::function<void(EmulatedDevice&)> work);
  std::shared_ptr<StreamMark> mark(CUstream_st& stream);
  void await(CUstream_st& stream, std::shared_ptr<StreamMark> mark);

  /// Runs work until all that the stream was given is done, and the host knows it.
  void finish(CUstream_st& stream);
  void finish(EmulatedDevice& device);
  /// Runs work until the mark has come, and the host knows it.
  void finish(EmulatedDevice& device, const StreamMark& mark);
  /// Runs up to three items, as many as chance says.
  void move_on(EmulatedDevice& device);
  void host_knows(const Clock& clock);

  Position next_position() { return ++position_; }
  void set_seed(std::uint64_t seed) { random_.seed(seed); }
  std::mt19937_64& random() { return random_; }
  /// Keeps and prints a fault of work; what the device was given is dropped.
  void keep(EmulatedDevice& device, Fault fault);
  /// The texts since the last call; devices go on.
  std::vector<std::string> take_faults();

 private:
  void append(CUstream_st& stream, Item item);
  CUstream_st* choose(EmulatedDevice& device);
  void run_front(CUstream_st& stream);
  /// Throws FaultError where nothing can run.
  void run_until(EmulatedDevice& device, const std::function<bool()>& enough);
  bool is_idle(const EmulatedDevice& device) const;
  std::uint32_t free_number();

  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
  std::set<CUstream_st*> streams_;
  std::vector<std::uint32_t> ended_;  ///< numbers of streams, to be used again
  Clock done_;                        ///< of each number
  PinnedMemory pinned_;
  std::shared_ptr<const Clock> host_ = std::make_shared<Clock>();
  Position position_ = 0;
  std::mt19937_64 random_{1};
  std::vector<std::string> faults_;
};

/// Made when first asked for, never freed. Its seed is MESHLOOM_EMULATED_SEED of the environment,
/// or 1.
Machine& machine();

/// The index of the device whose memory an address belongs to, or -1. Under the lock.
int device_of(const void* address);

}  // namespace meshloom::emulator

struct CUstream_st {
  meshloom::emulator::EmulatedDevice* device = nullptr;
  std::uint32_t number = 0;
  meshloom::emulator::Clock clock;  ///< of what it ran and waited for
  std::deque<meshloom::emulator::Item> items;
};

struct CUevent_st {
  bool timed = false;
  std::shared_ptr<meshloom::emulator::StreamMark> mark;  ///< of the last record
  meshloom::emulator::EmulatedDevice* device = nullptr;  ///< of it
};
