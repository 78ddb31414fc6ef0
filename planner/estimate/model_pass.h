// SPDX-License-Identifier: Apache-2.0
// ModelPass: a micro batch through a model on the ranks of tp: which collectives its layouts take,
// and what the first rank holds and computes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/estimate/layout_pass.h"
#include "planner/estimate/model_graph.h"
#include "planner/estimate/styled_model.h"

namespace meshloom::planner {

/// A step of the graph takes and gives this on the rank that holds most.
struct PassStep {
  std::vector<PlacedInput> inputs = {};
  std::vector<Shape> outputs = {};
  std::vector<int> storages = {};  ///< of the outputs, unless they are views (ModelPass::storages)
};

/// RunCollectives stands for equal passes through a run of the graph.
struct RunCollectives {
  std::int64_t times = 1;
  bool is_block = false;
  std::vector<PassCollective> collectives;
};

/// AttentionWork is an attention call of a layer, times the layers that have it.
struct AttentionWork {
  std::int64_t times = 0;
  bool causal = false;
  std::int64_t window = 0;  ///< 0: none
  double features = 0.0;    ///< of the queries of a token
};

/// A forward multiplies so much for a token of the micro batch, on average.
struct ForwardWork {
  double in_blocks = 0.0;  ///< multiplications with weights
  double outside = 0.0;
  std::vector<AttentionWork> attention = {};
};

struct ModelPass {
  const ModelGraph* graph = nullptr;   ///< outlives it
  std::vector<PassStep> steps;         ///< one for each of the graph; of equal blocks the last
  std::vector<std::int64_t> storages;  ///< elements of each piece of memory on the first rank
  std::vector<RunCollectives> runs;
  ForwardWork work;          ///< of the first rank
  ForwardWork whole_work;    ///< of the whole model
  double norms = 0.0;        ///< elements that norms of all blocks take, on the first rank
  double activations = 0.0;  ///< and that activations of all blocks give
  // The largest of any step, in elements on the first rank.
  std::int64_t stream = 0;       ///< of what goes from a block to the next
  std::int64_t attended = 0;     ///< queries, keys and values of an attention call
  std::int64_t loss_rows = 0;    ///< tokens whose loss the rank computes
  std::int64_t vocab = 0;        ///< tokens whose logits it computes, and so many
  std::int64_t whole_vocab = 0;  ///< there are
};

/// Returns the number of elements of each of the keys and values that attention copies, where a
/// rank has some of the query heads and all of fewer key heads.
std::int64_t copied_key_elements(const ModelGraph& graph, std::size_t step, const PassStep& noted);

/// Throws Unimplemented for styles under which an op takes plain local tensors or a redistribution
/// needs direct messages.
ModelPass model_pass(const ModelGraph& graph, const ModelModules& modules,
                     const StyledModel& styled);

}  // namespace meshloom::planner
