// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "daemon/comm/group_checks.h"
#include "daemon/comm/process_group.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// The handle of a call that is done but for what `device`, if there is one, still has to do.
class DoneWork : public Work {
 public:
  explicit DoneWork(std::optional<GroupDevice> device = std::nullopt)
      : device_(std::move(device)) {}
  bool poll() override { return true; }
  void enqueue_wait(Stream stream) override {
    if (device_) order_behind(*device_, stream);
  }
  void wait_host() override {}

 private:
  const std::optional<GroupDevice> device_;
};

/// A rank alone: copies if input and output differ, on the device where they lie there, and counts
/// nothing.
class SingleProcessGroup : public ProcessGroup {
 public:
  explicit SingleProcessGroup(GroupOptions options) : options_(std::move(options)) {}

  const std::string& name() const override { return options_.name; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkPtr all_reduce(const TensorView& data, ReduceOp op, AllReduceAlgorithm) override {
    buffers("all_reduce").check_buffer(data, "data");
    check_reducible(data.dtype, op, "all_reduce");
    return done(data);
  }
  WorkPtr all_gather(std::span<const TensorView> outputs, const TensorView& input) override {
    return copy(outputs, "outputs", {&input, 1}, "input", "all_gather");
  }
  WorkPtr reduce_scatter(const TensorView& output, std::span<const TensorView> inputs,
                         ReduceOp op) override {
    check_reducible(output.dtype, op, "reduce_scatter");
    return copy({&output, 1}, "output", inputs, "inputs", "reduce_scatter");
  }
  WorkPtr all_to_all(std::span<const TensorView> outputs,
                     std::span<const TensorView> inputs) override {
    check(!inputs.empty(), "all_to_all: no inputs");
    return copy(outputs, "outputs", inputs, "inputs", "all_to_all");
  }
  WorkPtr send_recv(std::span<const TensorView> outputs,
                    std::span<const TensorView> inputs) override {
    return all_to_all(outputs, inputs);
  }
  WorkPtr broadcast(const TensorView& data, int root) override {
    buffers("broadcast").check_buffer(data, "data");
    check(root == 0, "broadcast: root {} is not one of 1 ranks", root);
    return done(data);
  }
  WorkPtr scatter(const TensorView& output, std::span<const TensorView> inputs, int root) override {
    check(root == 0, "scatter: root {} is not one of 1 ranks", root);
    return copy({&output, 1}, "output", inputs, "inputs", "scatter");
  }
  WorkPtr gather(std::span<const TensorView> outputs, const TensorView& input, int root) override {
    check(root == 0, "gather: root {} is not one of 1 ranks", root);
    return copy(outputs, "outputs", {&input, 1}, "input", "gather");
  }
  WorkPtr send(const TensorView&, int destination, int tag) override {
    check_peer("send", destination, 0, 1, tag);
    return done();
  }
  WorkPtr recv(const TensorView&, int source, int tag) override {
    check_peer("recv", source, 0, 1, tag);
    return done();
  }
  WorkPtr barrier() override { return done(); }

  std::unique_ptr<ProcessGroup> split(const std::vector<std::vector<int>>& parts,
                                      const std::string& name) override {
    check_partition(parts, 1);
    GroupOptions options = options_;
    options.name = name;
    return std::make_unique<SingleProcessGroup>(std::move(options));
  }

  CommCounter counter(const std::string&) const override { return {}; }
  std::map<std::string, CommCounter> counters() const override { return {}; }
  void reset_counters() override {}
  std::string flight_record() const override { return {}; }
  std::optional<GroupDevice> device() const override { return options_.device; }

 private:
  CallBuffers buffers(const char* collective) const { return {collective, options_.device}; }
  static WorkPtr done() { return std::make_unique<DoneWork>(); }
  /// The same for a call whose result is `data`.
  WorkPtr done(const TensorView& data) const {
    if (data.device == kCpuDevice || !options_.device) return done();
    return std::make_unique<DoneWork>(options_.device);
  }
  /// The one output becomes the one input; their names are those of the call's arguments.
  WorkPtr copy(std::span<const TensorView> outputs, const char* output_name,
               std::span<const TensorView> inputs, const char* input_name,
               const char* collective) const {
    CallBuffers checks = buffers(collective);
    const DType dtype = inputs.empty() ? DType{} : inputs[0].dtype;
    checks.check_parts(inputs, 1, dtype, input_name);
    checks.check_parts(outputs, 1, dtype, output_name);
    const TensorView &to = outputs[0], &from = inputs[0];
    check_same_size(to, from, collective);
    if (to.device == kCpuDevice || from.numel() == 0)
      copy_bytes(to, from);
    else
      copy_on_device(*options_.device, to, from);
    return done(to);
  }

  GroupOptions options_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_single_process_group(const GroupOptions& options) {
  return std::make_unique<SingleProcessGroup>(options);
}

}  // namespace meshloom::comm
