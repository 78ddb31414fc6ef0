// SPDX-License-Identifier: Apache-2.0
// A ProcessGroup that writes down what is asked of it, in order: to compare ranks.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "daemon/comm/process_group.h"

namespace meshloom::testing {

/// One line per collective: its name, dtype, sizes over all ranks and root. Lines of two ranks of a
/// group are equal where they take part in the same collective. Groups that are split from it
/// are not recorded.
class RecordingGroup final : public comm::ProcessGroup {
 public:
  explicit RecordingGroup(std::unique_ptr<comm::ProcessGroup> group) : group_(std::move(group)) {}

  const std::vector<std::string>& lines() const { return lines_; }

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  comm::WorkPtr all_reduce(
      const TensorView& data, comm::ReduceOp op,
      comm::AllReduceAlgorithm algorithm = comm::AllReduceAlgorithm::kAuto) override {
    record("all_reduce", {&data, 1});
    return group_->all_reduce(data, op, algorithm);
  }
  comm::WorkPtr all_gather(std::span<const TensorView> outputs, const TensorView& input) override {
    record("all_gather", outputs);
    return group_->all_gather(outputs, input);
  }
  comm::WorkPtr reduce_scatter(const TensorView& output, std::span<const TensorView> inputs,
                               comm::ReduceOp op) override {
    record("reduce_scatter", inputs);
    return group_->reduce_scatter(output, inputs, op);
  }
  comm::WorkPtr all_to_all(std::span<const TensorView> outputs,
                           std::span<const TensorView> inputs) override {
    record("all_to_all", {});
    return group_->all_to_all(outputs, inputs);
  }
  comm::WorkPtr send_recv(std::span<const TensorView> outputs,
                          std::span<const TensorView> inputs) override {
    record("send_recv", {});
    return group_->send_recv(outputs, inputs);
  }
  comm::WorkPtr broadcast(const TensorView& data, int root) override {
    record(fmt::format("broadcast from {}", root), {&data, 1});
    return group_->broadcast(data, root);
  }
  comm::WorkPtr scatter(const TensorView& output, std::span<const TensorView> inputs,
                        int root) override {
    record(fmt::format("scatter from {}", root), {});
    return group_->scatter(output, inputs, root);
  }
  comm::WorkPtr gather(std::span<const TensorView> outputs, const TensorView& input,
                       int root) override {
    record(fmt::format("gather to {}", root), {});
    return group_->gather(outputs, input, root);
  }
  comm::WorkPtr send(const TensorView& data, int destination, int tag) override {
    return group_->send(data, destination, tag);
  }
  comm::WorkPtr recv(const TensorView& data, int source, int tag) override {
    return group_->recv(data, source, tag);
  }
  comm::WorkPtr barrier() override {
    record("barrier", {});
    return group_->barrier();
  }
  std::unique_ptr<comm::ProcessGroup> split(const std::vector<std::vector<int>>& parts,
                                            const std::string& name) override {
    return group_->split(parts, name);
  }

  comm::CommCounter counter(const std::string& collective) const override {
    return group_->counter(collective);
  }
  std::map<std::string, comm::CommCounter> counters() const override { return group_->counters(); }
  void reset_counters() override { group_->reset_counters(); }
  std::string flight_record() const override { return group_->flight_record(); }
  comm::FailureDomain* failures() override { return group_->failures(); }
  std::optional<comm::GroupDevice> device() const override { return group_->device(); }

 private:
  void record(std::string text, std::span<const TensorView> parts) {
    if (!parts.empty()) text += fmt::format(" {}", dtype_name(parts[0].dtype));
    for (const TensorView& part : parts) text += fmt::format(" {}", part.numel());
    lines_.push_back(std::move(text));
  }

  std::unique_ptr<comm::ProcessGroup> group_;
  std::vector<std::string> lines_;
};

}  // namespace meshloom::testing
