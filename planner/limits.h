// SPDX-License-Identifier: Apache-2.0
// The largest sizes that a config may ask for: far above any model that is trained, small enough
// that what is looked at before a run begins costs megabytes and milliseconds, and that the sums
// and products of an estimate stay inside 63 bits.
#pragma once

#include <cstdint>

namespace meshloom::planner {

// These limits hold for a model.
inline constexpr std::int64_t kMostLayers = 1 << 10;
inline constexpr std::int64_t kMostChannels = 1 << 17;  ///< hidden size; heads x head_dim too
inline constexpr std::int64_t kMostIntermediate = 1 << 20;
inline constexpr std::int64_t kMostHeads = 1 << 12;
inline constexpr std::int64_t kMostHeadDim = 1 << 12;
inline constexpr std::int64_t kMostVocabulary = 1 << 24;
inline constexpr std::int64_t kMostPositions = 1 << 24;  ///< tokens of a context
inline constexpr std::int64_t kMostTokenTypes = 1 << 16;

// These limits hold for a mesh.
inline constexpr std::int64_t kMostRanks = 1 << 20;
/// Each rank's part of each parameter is looked at. No model has so many heads.
inline constexpr int kMostTensorParallel = 1 << 14;

// These limits hold for the work of a step.
inline constexpr std::int64_t kMostBatch = 1 << 20;            ///< samples of a step
inline constexpr std::int64_t kMostTokensAtOnce = 1 << 26;     ///< of a micro batch
inline constexpr std::int64_t kMostValidationSteps = 1 << 20;  ///< batches of an evaluation

/// Entries of one list of patterns over names (styles, choices), and their number times that of the
/// layers: each is looked at for every name.
inline constexpr std::int64_t kMostPatterns = 1 << 10;
inline constexpr std::int64_t kMostPatternLayers = 1 << 17;

}  // namespace meshloom::planner
