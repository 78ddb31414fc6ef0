// SPDX-License-Identifier: Apache-2.0
// One attention call made ready for the tile kernels: sizes in tiles, positions and documents as
// int32, and which tiles can see which.
//
// Words: a *tile* is kTile queries by kTile keys. Inside it, keys come in units of kUnit, queries
// in units of kUnit (as rows of a product) and in panels of kPanel (as lanes of one).
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/simd/bf16_pair.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {

inline constexpr std::int64_t kTile = 96;
inline constexpr std::int64_t kUnit = 12;
inline constexpr std::int64_t kPanel = 32;
inline constexpr int kUnits = kTile / kUnit;
inline constexpr int kPanels = kTile / kPanel;

/// Span32 holds the smallest and the largest of some positions or document ids.
struct Span32 {
  std::int32_t low = 0, high = 0;
};

enum class Seen : std::uint8_t { kNone, kPartly, kAll };

/// IdTable holds the int32 ids of one side (queries or keys), padded to whole tiles with copies of
/// the last, and their spans.
struct IdTable {
  const std::int32_t* ids = nullptr;
  const Span32* tiles = nullptr;
  const Span32* units = nullptr;
  const Span32* panels = nullptr;  ///< queries only

  explicit operator bool() const { return ids != nullptr; }
};

/// HeadRows is one head of a [B,H,S,D] view: rows of elements.
struct HeadRows {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t row_stride = 0, stride = 0;  ///< in elements

  std::byte* row(std::int64_t index) const {
    return data + index * row_stride * static_cast<std::int64_t>(dtype_size(dtype));
  }
};

HeadRows head_rows(const TensorView& view, std::int64_t b, std::int64_t h);

struct AttentionProblem {
  AttentionInputs in;
  const AttentionOptions* options = nullptr;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, group = 0;
  std::int64_t queries = 0, keys = 0, dims = 0, dims_v = 0;
  std::int64_t query_tiles = 0, key_tiles = 0;
  std::int64_t dims_padded = 0, dims_v_padded = 0;  ///< whole vectors of any target
  float scale = 0.0f;
  /// A key is seen where key position - query position is within [nearest, farthest].
  std::int32_t nearest = 0, farthest = 0;
  std::int64_t position_base = 0;          ///< id 0 in the position tables
  IdTable query_positions, key_positions;  ///< those of queries with query_offset
  IdTable query_documents, key_documents;  ///< one table after the other, per batch row
  bool limited = false;                    ///< some mask may hide a key
  bool pairs = false;  ///< products read Bf16Pair: all operands are bfloat16, the CPU has the dot
  bool tiles = false;  ///< of pairs: by tile registers, or by their model
  bool modified = false;  ///< bias, ALiBi or dropout change scores or probabilities

  /// Returns how many values there are of a row that lies across: tile registers read whole tiles.
  std::int64_t dims_across() const { return tiles ? dims_padded : dims; }
  std::int64_t dims_v_across() const { return tiles ? dims_v_padded : dims_v; }

  /// Returns the tables of one batch row.
  IdTable documents_of_queries(std::int64_t b) const;
  IdTable documents_of_keys(std::int64_t b) const;
};

/// Describes the sizes alone; then `bytes` is what prepare takes of a workspace.
AttentionProblem describe_attention(const AttentionInputs& in, const AttentionOptions& options);
std::size_t attention_table_bytes(const AttentionProblem& problem);
/// Fills the tables. Throws Unimplemented where positions or documents span more than 2^30.
void prepare_attention(AttentionProblem& problem, SpanCutter& cutter);

/// Returns into how many parts the `tiles` of each kv head go (queries forward, keys backward), so
/// that threads are evenly busy: at least 9 tenths of the last round.
std::int64_t choose_parts(const AttentionProblem& problem, std::int64_t tiles, int threads);

/// Returns what queries with these spans see of keys with those.
inline Seen seen(const AttentionProblem& problem, Span32 query, Span32 key) {
  const std::int32_t low = key.low - query.high, high = key.high - query.low;
  if (low > problem.farthest || high < problem.nearest) return Seen::kNone;
  return low >= problem.nearest && high <= problem.farthest ? Seen::kAll : Seen::kPartly;
}
inline Seen same_document(Span32 query, Span32 key) {
  if (query.low > key.high || key.low > query.high) return Seen::kNone;
  const bool one = query.low == query.high && key.low == key.high;
  return one && query.low == key.low ? Seen::kAll : Seen::kPartly;
}

/// The map says what one tile of queries sees of one tile of keys, unit by unit.
struct TileMap {
  Seen all = Seen::kNone;
  int key_units = 0, query_units = 0, query_panels = 0;  ///< that hold any key or query
  std::uint8_t used[kUnits][kPanels];                    ///< Seen of (key unit, query panel)
  std::uint8_t zero[kUnits][kPanels];  ///< not seen, but inside a range below: holds zeros
  std::int8_t first_key[kUnits], end_key[kUnits];      ///< per query unit: key units it needs
  std::int8_t first_query[kUnits], end_query[kUnits];  ///< per key unit: query units it needs
};

TileMap map_tile(const AttentionProblem& problem, std::int64_t b, std::int64_t query_tile,
                 std::int64_t key_tile);

}  // namespace meshloom::kernels::cpu
