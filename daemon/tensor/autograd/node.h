// SPDX-License-Identifier: Apache-2.0
// The tape: nodes that know how to turn gradients of outputs into gradients of inputs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::autograd {

/// The gradient of one input goes along an edge: to another node's output, a leaf, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  int output_index = 0;
  std::shared_ptr<LeafGrad> leaf;

  bool wanted() const { return node != nullptr || leaf != nullptr; }
};

/// Returns the edge that a tensor's gradient takes (that of its local tensor if it has a layout).
Edge edge_of(const Tensor& tensor);

/// A node writes its results to a sink during backward.
class GradSink {
 public:
  virtual ~GradSink() = default;
  /// Returns false if nobody asks for input i's gradient: skip computing it.
  virtual bool wants(int input) const = 0;
  /// Hands over the gradient of input i (shape of that input, any strides), at most once per input.
  virtual void emit(int input, Tensor grad) = 0;

  /// LeafBuffer is a leaf's own float32 buffer (float64 of a float64 leaf), so that kernels add
  /// into it directly: `accumulate` false means it holds nothing yet and is to be overwritten.
  /// nullopt if input i is not a leaf (use emit).
  struct LeafBuffer {
    TensorView view;
    bool accumulate;
  };
  virtual std::optional<LeafBuffer> leaf_buffer(int input) = 0;
  /// Says that the buffer got from leaf_buffer(input) has been written.
  virtual void leaf_done(int input) = 0;
};

using TensorRefs = std::initializer_list<const Tensor*>;
using OutputRefs = std::initializer_list<Tensor*>;

/// Node is one recorded op. Subclasses hold what backward needs (saved tensors as detached handles:
/// a saved output that kept its grad_fn would keep its own node alive for ever).
class Node {
 public:
  Node() = default;
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual const char* name() const = 0;
  /// grad_outputs[i] is undefined if no gradient reached output i; at least one is defined. Runs
  /// with recording off.
  virtual void backward(std::span<const Tensor> grad_outputs, GradSink& sink) = 0;
  /// Frees saved tensors; called right after backward.
  virtual void release() = 0;

  const std::vector<Edge>& edges() const { return edges_; }
  int output_count() const { return output_count_; }
  /// It ran, and what it saved is gone.
  bool released() const { return released_; }
  /// Returns the node's place in the order of recording: a node's inputs always have smaller
  /// numbers.
  std::uint64_t sequence() const { return sequence_; }

 private:
  friend class GraphTask;
  friend void record(const std::shared_ptr<Node>&, TensorRefs, OutputRefs);
  friend void record(const std::shared_ptr<Node>&, std::span<const Tensor>, std::span<Tensor>);
  void number(ExecutionContext& context, int output_count);
  void attach(const std::shared_ptr<Node>& self, Tensor& output, int index);

  std::vector<Edge> edges_;  ///< one per input
  int output_count_ = 0;
  bool released_ = false;
  std::uint64_t sequence_ = 0;
  // Scratch of the backward run that numbered it.
  std::uint64_t run_ = 0;
  std::size_t task_ = 0;
};

/// Returns true if any input requires a gradient and its context records. Every op asks this for
/// all of its inputs, also when recording is off: that is how a checkpoint learns which leaves its
/// segment uses. If an input requires a gradient it is a poll point too: forward has one per op.
bool should_record(TensorRefs inputs);
bool should_record(std::span<const Tensor> inputs);
/// Links node's edges to inputs and makes node the grad_fn of outputs.
void record(const std::shared_ptr<Node>& node, TensorRefs inputs, OutputRefs outputs);
void record(const std::shared_ptr<Node>& node, std::span<const Tensor> inputs,
            std::span<Tensor> outputs);

}  // namespace meshloom::autograd
