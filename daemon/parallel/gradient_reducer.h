// SPDX-License-Identifier: Apache-2.0
// GradientReducer: sums gradients over data-parallel ranks while backward still runs.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/module.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/tensor.h"
#include "planner/communication_sizes.h"
#include "planner/gradient_buckets.h"

namespace meshloom::parallel {

/// Returns the parameters that require a gradient, which frozen ones do not.
std::vector<nn::NamedParameter> trained_parameters(std::vector<nn::NamedParameter> parameters);

struct GradientReducerOptions {
  /// A bucket travels when about so many bytes of gradients are final. Results do not depend on it.
  std::int64_t bucket_bytes = planner::kGradientBucketBytes;
};

/// Lays the float32 gradients of all parameters into flat buckets, in the order in which backward
/// finishes them, and all_reduces each bucket (sum, in rank order) as soon as its last gradient is
/// final. Collectives move at the context's poll points. A parameter without a gradient on this
/// rank counts as zero; one that has none on any rank has none afterwards. In a group of one rank
/// everything is a no-op.
///
/// Per optimizer step: the micro batches but the last, begin(), the last one's forward and
/// backward, finish(). Every rank of the group does so, whether or not it has samples.
class GradientReducer {
 public:
  /// Gives every parameter a gradient buffer inside a bucket, so none may hold a gradient. The
  /// parameters, their order and sizes are the same on every rank and outlive the reducer, as do
  /// context and group. Throws Unimplemented naming a float64 parameter.
  GradientReducer(ExecutionContext& context, comm::ProcessGroup& group,
                  const std::vector<nn::NamedParameter>& parameters,
                  const GradientReducerOptions& options = {});
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// From here on a gradient that backward finishes is final.
  void begin();
  /// Sends what was not sent and waits for all. Afterwards every rank holds the same sums. May be
  /// called without begin(), then all is sent here. Throws what a collective threw, also earlier,
  /// inside backward.
  void finish();

  std::size_t bucket_count() const { return buckets_.size(); }

 private:
  struct Slot {
    std::shared_ptr<autograd::LeafGrad> leaf;
    std::string name;
    Tensor gradient;  ///< the leaf's buffer: its place in the bucket
    bool ready = false;
  };
  struct Bucket {
    Tensor flat;   ///< gradients, then the flags
    Tensor flags;  ///< by slot: on how many ranks it has a gradient
    std::vector<Slot> slots;
    std::size_t missing = 0;  ///< slots that are not ready
    bool all_here = false;    ///< sent: this rank has the gradients of all slots
    comm::WorkPtr work;
  };

  Bucket make_bucket(const std::vector<nn::NamedParameter>& parameters,
                     const planner::GradientBucket& plan);
  void on_ready(std::size_t bucket, std::size_t slot);
  /// Sends full buckets, in order; all of them if `rest`.
  void send_full(bool rest);
  void send(Bucket& bucket);
  void end_step();
  /// Moves what is in flight, between the ops from begin() on.
  void poll();

  ExecutionContext& context_;
  comm::ProcessGroup& group_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;                 ///< first bucket that was not sent
  std::optional<PollPoint> poll_point_;  ///< between begin and finish
  std::exception_ptr failure_;
};

}  // namespace meshloom::parallel
