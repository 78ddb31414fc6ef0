// SPDX-License-Identifier: Apache-2.0
// ModelPass: a micro batch through a model on the ranks of tp: which collectives its layouts take,
// and what the first rank holds and computes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/estimate/layout_pass.h"
#include "planner/estimate/styled_model.h"

namespace meshloom::planner {

/// One layer, in elements on the rank that holds most.
struct LayerSizes {
  std::int64_t stream = 0;      ///< of a tensor of the residual stream
  std::int64_t boundary = 0;    ///< the inputs of the layer
  std::int64_t norms = 0;       ///< inputs of norms
  std::int64_t norm_rows = 0;   ///< tokens that norms see, all norms together
  std::int64_t queries = 0;     ///< attention's queries; its output is as large
  std::int64_t attention = 0;   ///< its queries, keys, values and output
  std::int64_t logsumexp = 0;   ///< float32
  std::int64_t inner = 0;       ///< of a tensor between the layers of the MLP
  std::int64_t received = 0;    ///< inputs and weights of projections that were copied for them
  std::int64_t in_passing = 0;  ///< of them, those of the MLP
  std::int64_t weight_gradient = 0;  ///< the largest that is summed over tp in backward
  double matmul = 0.0;               ///< multiplications per token of the micro batch
};

/// Equal layers' collectives.
struct LayerCollectives {
  std::int64_t layers = 0;
  std::vector<PassCollective> collectives;
};

struct ModelPass {
  std::vector<PassCollective> before;  ///< the layers: the embedding
  std::vector<LayerCollectives> layers;
  std::vector<PassCollective> after;  ///< the last norm, output projection and loss
  LayerSizes layer;                   ///< of the layers that there are most of
  std::int64_t hidden = 0;            ///< elements that the output projection takes
  std::int64_t vocab = 0;             ///< tokens whose logits a rank computes
};

/// Throws Unimplemented for styles under which an op takes plain local tensors or a redistribution
/// needs direct messages.
ModelPass model_pass(const ModelShape& model, const StyledModel& styled, std::int64_t batch,
                     std::int64_t sequence);

}  // namespace meshloom::planner
