// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tests/support/cuda_emulator/architecture.h"

namespace meshloom::emulator {
namespace {

/// Opens the memory of a device for as long as its work runs.
class OpenMemory {
 public:
  explicit OpenMemory(const DeviceMemory& memory) : memory_(memory) { memory_.open(); }
  ~OpenMemory() { memory_.close(); }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

 private:
  const DeviceMemory& memory_;
};

bool may_run(const CUstream_st& stream) {
  if (stream.items.empty()) return false;
  const Item& item = stream.items.front();
  return item.awaits == nullptr || item.awaits->come;
}

}  // namespace

EmulatedDevice& Machine::device(int index) {
  const auto at = static_cast<std::size_t>(index);
  if (devices_.size() <= at) devices_.resize(at + 1);
  if (!devices_[at]) devices_[at] = std::make_unique<EmulatedDevice>(index);
  return *devices_[at];
}

EmulatedDevice* Machine::device_at(const void* address) {
  for (const auto& device : devices_)
    if (device && device->memory.contains(address)) return device.get();
  return nullptr;
}

std::uint32_t Machine::free_number() {
  if (ended_.empty()) {
    done_.push_back(0);
    return static_cast<std::uint32_t>(done_.size() - 1);
  }
  const std::uint32_t number = ended_.back();
  ended_.pop_back();
  return number;
}

CUstream_st* Machine::open_stream(EmulatedDevice& device) {
  auto* const stream = new CUstream_st;
  stream->device = &device;
  stream->number = free_number();
  stream->clock.resize(done_.size());
  stream->clock[stream->number] = done_[stream->number];
  device.streams.push_back(stream);
  streams_.insert(stream);
  return stream;
}

void Machine::close_stream(CUstream_st* stream) {
  if (!stream->device->fault) run_until(*stream->device, [&] { return stream->items.empty(); });
  ended_.push_back(stream->number);
  std::erase(stream->device->streams, stream);
  streams_.erase(stream);
  delete stream;
}

void Machine::append(CUstream_st& stream, Item item) {
  item.position = next_position();
  item.host = host_;
  stream.items.push_back(std::move(item));
}

void Machine::give(CUstream_st& stream, WorkName name, std::function<void(EmulatedDevice&)> work) {
  Item item;
  item.name = name;
  item.work = std::move(work);
  append(stream, std::move(item));
}

std::shared_ptr<StreamMark> Machine::mark(CUstream_st& stream) {
  Item item;
  item.sets = std::make_shared<StreamMark>();
  std::shared_ptr<StreamMark> mark = item.sets;
  append(stream, std::move(item));
  return mark;
}

void Machine::await(CUstream_st& stream, std::shared_ptr<StreamMark> mark) {
  Item item;
  item.awaits = std::move(mark);
  append(stream, std::move(item));
}

void Machine::run_front(CUstream_st& stream) {
  Item item = std::move(stream.items.front());
  stream.items.pop_front();
  EmulatedDevice& device = *stream.device;
  join(stream.clock, *item.host);
  if (item.awaits) {
    join(stream.clock, item.awaits->clock);
  } else if (item.sets) {
    item.sets->come = true;
    item.sets->clock = stream.clock;
    item.sets->at = std::chrono::steady_clock::now();
  } else {
    stream.clock[stream.number] = ++done_[stream.number];
    device.history.begin(item.name, stream.number, stream.clock, item.position);
    device.memory.go_to(item.position);
    const OpenMemory open(device.memory);
    item.work(device);
  }
}

CUstream_st* Machine::choose(EmulatedDevice& device) {
  std::vector<CUstream_st*> ready;
  const auto add = [&](const EmulatedDevice& one) {
    for (CUstream_st* stream : one.streams)
      if (may_run(*stream)) ready.push_back(stream);
  };
  add(device);
  // Its streams may wait for another device's.
  for (std::size_t i = 0; ready.empty() && i < devices_.size(); ++i)
    if (devices_[i]) add(*devices_[i]);
  return ready.empty() ? nullptr : ready[random_() % ready.size()];
}

bool Machine::is_idle(const EmulatedDevice& device) const {
  return std::all_of(device.streams.begin(), device.streams.end(),
                     [](const CUstream_st* stream) { return stream->items.empty(); });
}

void Machine::run_until(EmulatedDevice& device, const std::function<bool()>& enough) {
  while (!enough()) {
    CUstream_st* const stream = choose(device);
    if (stream == nullptr)
      throw FaultError(cudaErrorLaunchTimeout,
                       fmt::format("every stream of cuda:{} waits for an event that nothing left "
                                   "to run records",
                                   device.index));
    EmulatedDevice& runs = *stream->device;
    try {
      run_front(*stream);
    } catch (const FaultError& error) {
      keep(runs, {error.error(), error.what()});
      throw FaultError(error.error(), runs.fault->text);
    }
  }
  if (is_idle(device)) device.memory.forget_before(position_ + 1);
}

void Machine::finish(CUstream_st& stream) {
  run_until(*stream.device, [&] { return stream.items.empty(); });
  host_knows(stream.clock);
}

void Machine::finish(EmulatedDevice& device) {
  run_until(device, [&] { return is_idle(device); });
  for (const CUstream_st* stream : device.streams) host_knows(stream->clock);
}

void Machine::finish(EmulatedDevice& device, const StreamMark& mark) {
  run_until(device, [&] { return mark.come; });
  host_knows(mark.clock);
}

void Machine::move_on(EmulatedDevice& device) {
  std::uint64_t left = random_() % 4;
  run_until(device, [&] { return left-- == 0 || choose(device) == nullptr; });
}

void Machine::host_knows(const Clock& clock) {
  auto host = std::make_shared<Clock>(*host_);
  join(*host, clock);
  host_ = std::move(host);
}

void Machine::keep(EmulatedDevice& device, Fault fault) {
  fault.text = fmt::format("emulated cuda:{}: {}", device.index, fault.text);
  fmt::print(stderr, "{}\n", fault.text);
  faults_.push_back(fault.text);
  device.fault = std::move(fault);
  for (CUstream_st* stream : device.streams) {
    for (const Item& item : stream->items)
      if (item.sets) item.sets->come = true;
    stream->items.clear();
  }
}

std::vector<std::string> Machine::take_faults() {
  for (const auto& device : devices_)
    if (device) device->fault.reset();
  return std::exchange(faults_, {});
}

Machine& machine() {
  static Machine* const machine = [] {
    auto* const made = new Machine;
    if (const char* const seed = std::getenv("MESHLOOM_EMULATED_SEED"))
      made->set_seed(std::strtoull(seed, nullptr, 10));
    return made;
  }();
  return *machine;
}

int device_of(const void* address) {
  const EmulatedDevice* const device = machine().device_at(address);
  return device == nullptr ? -1 : device->index;
}

}  // namespace meshloom::emulator
