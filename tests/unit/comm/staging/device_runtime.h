// SPDX-License-Identifier: Apache-2.0
// DeviceRuntime: a rank whose groups work on a fenced device, so that checks that are written for
// host memory try staging.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/comm/mesh/rank_runtime.h"
#include "daemon/tensor/allocator.h"
#include "tests/support/device_ranks.h"

namespace meshloom::comm::testing {

/// The device of a rank, and memory there.
class RankDevice {
 public:
  explicit RankDevice(int index)
      : device_(meshloom::testing::fenced_group_device(index)),
        memory_(Allocator::create(device_.backend->make_source(MemoryKind::kDevice, {}))) {}
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  const GroupDevice& device() const { return device_; }
  Allocator& memory() const { return *memory_; }
  kernels::KernelContext context() const { return {{}, device_.stream->get(), nullptr}; }

 private:
  GroupDevice device_;
  std::shared_ptr<Allocator> memory_;
};

/// Twins in device memory of the host buffers of one call.
class DeviceTwins {
 public:
  explicit DeviceTwins(std::shared_ptr<RankDevice> device) : device_(std::move(device)) {}

  TensorView twin(const TensorView& host) {
    std::shared_ptr<Storage>& memory = memory_[{host.data, host.bytes()}];
    const bool is_new = !memory;
    if (is_new) memory = device_->memory().allocate(host.bytes());
    TensorView view = host;
    view.data = memory->data();
    view.device = device_->device().device;
    if (is_new && host.numel() > 0 && host.contiguous())
      device_->device().backend->copy_from_host(device_->context(), view, host);
    return view;
  }
  std::vector<TensorView> twins(std::span<const TensorView> views) {
    std::vector<TensorView> result;
    for (const TensorView& view : views) result.push_back(twin(view));
    return result;
  }
  /// What is to be copied to the host at the end.
  void write_back(std::span<const TensorView> outputs) {
    outputs_.assign(outputs.begin(), outputs.end());
  }
  void finish() {
    for (const TensorView& host : std::exchange(outputs_, {}))
      if (host.numel() > 0)
        device_->device().backend->copy_to_host(device_->context(), host, twin(host));
  }

 private:
  std::shared_ptr<RankDevice> device_;
  std::map<std::pair<void*, std::size_t>, std::shared_ptr<Storage>> memory_;
  std::vector<TensorView> outputs_;
};

/// Shows the host what a call has made on the device once it is done.
class DeviceWork final : public Work {
 public:
  DeviceWork(WorkPtr work, DeviceTwins twins) : work_(std::move(work)), twins_(std::move(twins)) {}
  bool poll() override {
    const bool done = work_->poll();
    if (done) twins_.finish();
    return done;
  }
  void enqueue_wait(Stream) override { wait_host(); }
  void wait_host() override {
    work_->wait_host();
    twins_.finish();
  }

 private:
  WorkPtr work_;
  DeviceTwins twins_;
};

/// Takes host memory and gives its group device memory.
class DeviceMemoryGroup final : public ProcessGroup {
 public:
  using Views = std::span<const TensorView>;

  DeviceMemoryGroup(std::unique_ptr<ProcessGroup> group, std::shared_ptr<RankDevice> device)
      : device_(std::move(device)), group_(std::move(group)) {}

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  WorkPtr all_reduce(const TensorView& data, ReduceOp op, AllReduceAlgorithm algorithm) override {
    return on_device({&data, 1}, {},
                     [&](Views out, Views) { return group_->all_reduce(out[0], op, algorithm); });
  }
  WorkPtr all_gather(Views outputs, const TensorView& input) override {
    return on_device(outputs, {&input, 1},
                     [&](Views out, Views in) { return group_->all_gather(out, in[0]); });
  }
  WorkPtr reduce_scatter(const TensorView& output, Views inputs, ReduceOp op) override {
    return on_device({&output, 1}, inputs,
                     [&](Views out, Views in) { return group_->reduce_scatter(out[0], in, op); });
  }
  WorkPtr all_to_all(Views outputs, Views inputs) override {
    return on_device(outputs, inputs,
                     [&](Views out, Views in) { return group_->all_to_all(out, in); });
  }
  WorkPtr send_recv(Views outputs, Views inputs) override {
    return on_device(outputs, inputs,
                     [&](Views out, Views in) { return group_->send_recv(out, in); });
  }
  WorkPtr broadcast(const TensorView& data, int root) override {
    return on_device({&data, 1}, {},
                     [&](Views out, Views) { return group_->broadcast(out[0], root); });
  }
  WorkPtr scatter(const TensorView& output, Views inputs, int root) override {
    return on_device({&output, 1}, inputs,
                     [&](Views out, Views in) { return group_->scatter(out[0], in, root); });
  }
  WorkPtr gather(Views outputs, const TensorView& input, int root) override {
    return on_device(outputs, {&input, 1},
                     [&](Views out, Views in) { return group_->gather(out, in[0], root); });
  }
  WorkPtr send(const TensorView& data, int destination, int tag) override {
    return on_device({}, {&data, 1},
                     [&](Views, Views in) { return group_->send(in[0], destination, tag); });
  }
  WorkPtr recv(const TensorView& data, int source, int tag) override {
    return on_device({&data, 1}, {},
                     [&](Views out, Views) { return group_->recv(out[0], source, tag); });
  }
  WorkPtr barrier() override { return group_->barrier(); }
  std::unique_ptr<ProcessGroup> split(const std::vector<std::vector<int>>& parts,
                                      const std::string& name) override {
    return std::make_unique<DeviceMemoryGroup>(group_->split(parts, name), device_);
  }
  CommCounter counter(const std::string& collective) const override {
    return group_->counter(collective);
  }
  std::map<std::string, CommCounter> counters() const override { return group_->counters(); }
  void reset_counters() override { group_->reset_counters(); }
  std::string flight_record() const override { return group_->flight_record(); }
  FailureDomain* failures() override { return group_->failures(); }
  std::shared_ptr<SymmetricMemory> symmetric_memory() override {
    return group_->symmetric_memory();
  }
  std::string hosts() const override { return group_->hosts(); }
  std::optional<GroupDevice> device() const override { return group_->device(); }

 private:
  template <typename Call>
  WorkPtr on_device(Views outputs, Views inputs, const Call& call) {
    DeviceTwins twins(device_);
    const std::vector<TensorView> in = twins.twins(inputs), out = twins.twins(outputs);
    twins.write_back(outputs);
    WorkPtr work = call(out, in);
    return std::make_unique<DeviceWork>(std::move(work), std::move(twins));
  }

  std::shared_ptr<RankDevice> device_;  ///< outlives the group
  std::unique_ptr<ProcessGroup> group_;
};

class DeviceRuntime final : public RankRuntime {
 public:
  explicit DeviceRuntime(RankRuntime& runtime)
      : runtime_(runtime), device_(std::make_shared<RankDevice>(runtime.rank())) {}
  int rank() const override { return runtime_.rank(); }
  int world_size() const override { return runtime_.world_size(); }
  Bootstrap& bootstrap() override { return runtime_.bootstrap(); }
  std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions& options) override {
    GroupOptions with_device = options;
    with_device.device = device_->device();
    return std::make_unique<DeviceMemoryGroup>(runtime_.make_world_group(with_device), device_);
  }
  RankDevice& device() { return *device_; }

 private:
  RankRuntime& runtime_;
  std::shared_ptr<RankDevice> device_;
};

}  // namespace meshloom::comm::testing
