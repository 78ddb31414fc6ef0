// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "daemon/comm/group_checks.h"
#include "daemon/comm/process_group.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

class DoneWork : public Work {
 public:
  bool poll() override { return true; }
  void enqueue_wait(Stream) override {}
  void wait_host() override {}
};

/// A rank alone: copies if input and output differ, counts nothing.
class SingleProcessGroup : public ProcessGroup {
 public:
  explicit SingleProcessGroup(GroupOptions options) : options_(std::move(options)) {}

  const std::string& name() const override { return options_.name; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkPtr all_reduce(const TensorView& data, ReduceOp op, AllReduceAlgorithm) override {
    check_buffer(data, "all_reduce", "data");
    check_reducible(data.dtype, op, "all_reduce");
    return done();
  }
  WorkPtr all_gather(std::span<const TensorView> outputs, const TensorView& input) override {
    check_parts(outputs, 1, input.dtype, "all_gather", "outputs");
    return copy(outputs[0], input, "all_gather");
  }
  WorkPtr reduce_scatter(const TensorView& output, std::span<const TensorView> inputs,
                         ReduceOp op) override {
    check_parts(inputs, 1, output.dtype, "reduce_scatter", "inputs");
    check_reducible(output.dtype, op, "reduce_scatter");
    return copy(output, inputs[0], "reduce_scatter");
  }
  WorkPtr all_to_all(std::span<const TensorView> outputs,
                     std::span<const TensorView> inputs) override {
    check(!inputs.empty(), "all_to_all: no inputs");
    check_parts(inputs, 1, inputs[0].dtype, "all_to_all", "inputs");
    check_parts(outputs, 1, inputs[0].dtype, "all_to_all", "outputs");
    return copy(outputs[0], inputs[0], "all_to_all");
  }
  WorkPtr send_recv(std::span<const TensorView> outputs,
                    std::span<const TensorView> inputs) override {
    return all_to_all(outputs, inputs);
  }
  WorkPtr broadcast(const TensorView& data, int root) override {
    check_buffer(data, "broadcast", "data");
    check(root == 0, "broadcast: root {} is not one of 1 ranks", root);
    return done();
  }
  WorkPtr scatter(const TensorView& output, std::span<const TensorView> inputs, int root) override {
    check(root == 0, "scatter: root {} is not one of 1 ranks", root);
    check_parts(inputs, 1, output.dtype, "scatter", "inputs");
    return copy(output, inputs[0], "scatter");
  }
  WorkPtr gather(std::span<const TensorView> outputs, const TensorView& input, int root) override {
    check(root == 0, "gather: root {} is not one of 1 ranks", root);
    check_parts(outputs, 1, input.dtype, "gather", "outputs");
    return copy(outputs[0], input, "gather");
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

 private:
  static WorkPtr done() { return std::make_unique<DoneWork>(); }
  static WorkPtr copy(const TensorView& to, const TensorView& from, const char* collective) {
    check_buffer(to, collective, "output");
    check_buffer(from, collective, "input");
    check_same_size(to, from, collective);
    copy_bytes(to, from);
    return done();
  }

  GroupOptions options_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_single_process_group(const GroupOptions& options) {
  return std::make_unique<SingleProcessGroup>(options);
}

}  // namespace meshloom::comm
