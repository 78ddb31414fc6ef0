// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: a segment keeps its inputs only and runs again in backward.
//
// The first run happens with recording off. Its ops report the leaves they use to the context's
// CheckpointFrame, so that the one node that stands for the segment has an edge to each of them and
// their ready hooks wait for it. Backward runs the segment again with recording on and goes
// backward through it at once. Random numbers come by position, so both runs compute the same.
//
// Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016; keeping
// the attention outputs is Korthikanti et al., "Reducing Activation Recomputation in Large
// Transformer Models", 2022, turned round: there attention alone is recomputed, here it alone is
// not.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::autograd {

/// A running segment collects this (first run) or gets it back (second run).
class CheckpointFrame {
 public:
  explicit CheckpointFrame(bool keep_attention) : keep_attention_(keep_attention) {}

  /// Notes a leaf that requires a gradient; other tensors are ignored.
  void note_leaf(const Tensor& tensor);
  const std::vector<Tensor>& leaves() const { return leaves_; }

  /// Attention holds output and lse of an attention op.
  struct Attention {
    Tensor o, lse;
  };
  /// Returns, in the second run, the results of the segment's next attention op, if they were kept.
  std::optional<Attention> replay_attention();
  /// Keeps the results of an attention op in the first run, if that was asked for.
  void keep_attention(const Tensor& o, const Tensor& lse);
  void start_replay() { replaying_ = true; }

 private:
  bool keep_attention_;
  bool replaying_ = false;
  std::vector<Tensor> leaves_;
  std::vector<Attention> attention_;
  std::size_t next_ = 0;
};

struct CheckpointOptions {
  bool keep_attention = false;  ///< attention's outputs stay, everything else is computed again
};

using Segment = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// Runs `segment` on inputs and returns its outputs. The segment must be a pure function of its
/// inputs and of leaves (parameters), and what it captures must live until backward. Without
/// recording it is called directly.
std::vector<Tensor> checkpoint(Segment segment, std::span<const Tensor> inputs,
                               const CheckpointOptions& options = {});
Tensor checkpoint(std::function<Tensor(const Tensor&)> segment, const Tensor& input,
                  const CheckpointOptions& options = {});

}  // namespace meshloom::autograd
