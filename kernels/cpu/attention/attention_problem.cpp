// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/integer_math.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/simd/matrix_tiles.h"

namespace meshloom::kernels::cpu {
namespace {

// Ids are kept relative to their smallest; differences of any two then fit int32.
constexpr std::int64_t kMostSpan = std::int64_t{1} << 30;
// Whole vectors of every target, so that packed rows need no tail.
constexpr std::int64_t kVectorFloats = 16;

// The id of element i of one side: offset + data[i], or offset + i.
struct IdSource {
  const std::int64_t* data = nullptr;
  std::int64_t stride = 0, offset = 0, count = 0;

  std::int64_t at(std::int64_t i) const {
    return offset + (data == nullptr ? i : data[i * stride]);
  }
};

struct Limits {
  std::int64_t low = std::numeric_limits<std::int64_t>::max();
  std::int64_t high = std::numeric_limits<std::int64_t>::min();

  void include(const IdSource& source) {
    for (std::int64_t i = 0; i < source.count; ++i) {
      low = std::min(low, source.at(i));
      high = std::max(high, source.at(i));
    }
  }
};

Limits limits_of(const IdSource& queries, const IdSource& keys, const char* what) {
  Limits limits;
  limits.include(queries);
  limits.include(keys);
  if (limits.high - limits.low > kMostSpan)
    throw Unimplemented(fmt::format("attention: {} from {} to {} span more than 2^30", what,
                                    limits.low, limits.high));
  return limits;
}

void fill_spans(const std::int32_t* ids, std::int64_t count, std::int64_t step, Span32* spans) {
  for (std::int64_t i = 0; i < count; i += step) {
    const auto [low, high] = std::minmax_element(ids + i, ids + i + step);
    spans[i / step] = {*low, *high};
  }
}

constexpr std::int64_t table_ids(std::int64_t tiles) { return tiles * kTile; }

std::size_t table_bytes(std::int64_t tiles, std::int64_t rows) {
  return piece_bytes<std::int32_t>(rows * table_ids(tiles)) +
         piece_bytes<Span32>(rows * tiles * (1 + kUnits + kPanels));
}

// Builds the tables of `rows` id rows one after the other.
class TableWriter {
 public:
  TableWriter(SpanCutter& cutter, std::int64_t tiles, std::int64_t rows)
      : tiles_(tiles),
        ids_(cutter.take<std::int32_t>(rows * table_ids(tiles))),
        spans_(cutter.take<Span32>(rows * tiles * (1 + kUnits + kPanels))) {}

  IdTable first() const { return table(0); }
  void write(std::int64_t row, const IdSource& source, std::int64_t low) const {
    std::int32_t* ids = ids_ + row * table_ids(tiles_);
    for (std::int64_t i = 0; i < table_ids(tiles_); ++i)
      ids[i] = static_cast<std::int32_t>(source.at(std::min(i, source.count - 1)) - low);
    const IdTable t = table(row);
    fill_spans(ids, table_ids(tiles_), kTile, const_cast<Span32*>(t.tiles));
    fill_spans(ids, table_ids(tiles_), kUnit, const_cast<Span32*>(t.units));
    fill_spans(ids, table_ids(tiles_), kPanel, const_cast<Span32*>(t.panels));
  }

 private:
  IdTable table(std::int64_t row) const {
    const Span32* spans = spans_ + row * tiles_ * (1 + kUnits + kPanels);
    return {ids_ + row * table_ids(tiles_), spans, spans + tiles_, spans + tiles_ * (1 + kUnits)};
  }

  std::int64_t tiles_;
  std::int32_t* ids_;
  Span32* spans_;
};

IdTable advance(const IdTable& table, std::int64_t b, std::int64_t tiles) {
  if (!table) return {};
  const std::int64_t spans = b * tiles * (1 + kUnits + kPanels);
  return {table.ids + b * table_ids(tiles), table.tiles + spans, table.units + spans,
          table.panels + spans};
}

IdSource positions(const TensorView& view, std::int64_t offset, std::int64_t count) {
  if (!view.defined()) return {nullptr, 0, offset, count};
  return {view.as<std::int64_t>(), view.stride(0), offset, count};
}

IdSource documents(const TensorView& view, std::int64_t b) {
  return {view.as<std::int64_t>() + b * view.stride(0), view.stride(1), 0, view.size(1)};
}

void prepare_documents(AttentionProblem& problem, SpanCutter& cutter) {
  const AttentionOptions& options = *problem.options;
  const TableWriter queries(cutter, problem.query_tiles, problem.batch);
  const TableWriter keys(cutter, problem.key_tiles, problem.batch);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const IdSource q = documents(options.query_documents, b);
    const IdSource k = documents(options.key_documents, b);
    const Limits limits = limits_of(q, k, "document ids");
    queries.write(b, q, limits.low);
    keys.write(b, k, limits.low);
  }
  problem.query_documents = queries.first();
  problem.key_documents = keys.first();
}

// Visibility of a pair of spans of positions and, where given, of documents.
class PairTest {
 public:
  PairTest(const AttentionProblem& problem, std::int64_t b)
      : problem_(problem),
        query_documents_(problem.documents_of_queries(b)),
        key_documents_(problem.documents_of_keys(b)) {}

  template <typename QuerySpans, typename KeySpans>
  Seen operator()(QuerySpans query_spans, std::int64_t query, KeySpans key_spans,
                  std::int64_t key) const {
    const Seen by_position = seen(problem_, (problem_.query_positions.*query_spans)[query],
                                  (problem_.key_positions.*key_spans)[key]);
    if (!query_documents_ || by_position == Seen::kNone) return by_position;
    return std::min(by_position, same_document((query_documents_.*query_spans)[query],
                                               (key_documents_.*key_spans)[key]));
  }

 private:
  const AttentionProblem& problem_;
  IdTable query_documents_, key_documents_;
};

void map_everything(TileMap& map) {
  std::fill_n(&map.used[0][0], kUnits * kPanels, static_cast<std::uint8_t>(Seen::kAll));
  std::fill_n(&map.zero[0][0], kUnits * kPanels, std::uint8_t{0});
  for (int u = 0; u < kUnits; ++u) {
    map.first_key[u] = map.first_query[u] = 0;
    map.end_key[u] = static_cast<std::int8_t>(map.key_units);
    map.end_query[u] = static_cast<std::int8_t>(map.query_units);
  }
}

// The ranges of units that products run over, from the visibility of unit pairs.
void map_ranges(TileMap& map, const PairTest& test, std::int64_t query_tile,
                std::int64_t key_tile) {
  std::fill_n(map.first_key, kUnits, static_cast<std::int8_t>(kUnits));
  std::fill_n(map.first_query, kUnits, static_cast<std::int8_t>(kUnits));
  std::fill_n(map.end_key, kUnits, std::int8_t{0});
  std::fill_n(map.end_query, kUnits, std::int8_t{0});
  for (std::int8_t q = 0; q < map.query_units; ++q)
    for (std::int8_t k = 0; k < map.key_units; ++k) {
      if (test(&IdTable::units, query_tile * kUnits + q, &IdTable::units, key_tile * kUnits + k) ==
          Seen::kNone)
        continue;
      map.first_key[q] = std::min(map.first_key[q], k);
      map.end_key[q] = std::max<std::int8_t>(map.end_key[q], static_cast<std::int8_t>(k + 1));
      map.first_query[k] = std::min(map.first_query[k], q);
      map.end_query[k] = std::max<std::int8_t>(map.end_query[k], static_cast<std::int8_t>(q + 1));
    }
}

// Whether some query unit that touches the panel needs this key unit, or the other way round.
bool in_range(const TileMap& map, int key_unit, int panel) {
  const int first = static_cast<int>(panel * kPanel / kUnit);
  const int last = static_cast<int>(((panel + 1) * kPanel - 1) / kUnit);
  for (int q = first; q <= std::min(last, map.query_units - 1); ++q) {
    if (key_unit >= map.first_key[q] && key_unit < map.end_key[q]) return true;
    if (q >= map.first_query[key_unit] && q < map.end_query[key_unit]) return true;
  }
  return false;
}

}  // namespace

HeadRows head_rows(const TensorView& view, std::int64_t b, std::int64_t h) {
  const std::int64_t offset = b * view.stride(0) + h * view.stride(1);
  return {view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype)),
          view.dtype, view.stride(2), view.stride(3)};
}

IdTable AttentionProblem::documents_of_queries(std::int64_t b) const {
  return advance(query_documents, b, query_tiles);
}
IdTable AttentionProblem::documents_of_keys(std::int64_t b) const {
  return advance(key_documents, b, key_tiles);
}

AttentionProblem describe_attention(const AttentionInputs& in, const AttentionOptions& options) {
  AttentionProblem p;
  p.in = in;
  p.options = &options;
  p.batch = in.q.size(0);
  p.heads = in.q.size(1);
  p.kv_heads = in.k.size(1);
  p.group = p.heads / p.kv_heads;
  p.queries = in.q.size(2);
  p.keys = in.k.size(2);
  p.dims = in.q.size(3);
  p.dims_v = in.v.size(3);
  p.query_tiles = round_up(p.queries, kTile) / kTile;
  p.key_tiles = round_up(p.keys, kTile) / kTile;
  p.scale = options.scale != 0.0 ? static_cast<float>(options.scale)
                                 : 1.0f / std::sqrt(static_cast<float>(p.dims));
  constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();
  const auto limit = [](std::int64_t window) {
    return window < 0 ? kFar : static_cast<std::int32_t>(std::min<std::int64_t>(window, kFar));
  };
  p.nearest = -limit(options.window_left);
  p.farthest = options.is_causal ? 0 : limit(options.window_right);
  p.limited = options.is_causal || options.window_left >= 0 || options.window_right >= 0 ||
              options.query_documents.defined();
  p.pairs = in.q.dtype == DType::kBFloat16 && in.k.dtype == DType::kBFloat16 &&
            in.v.dtype == DType::kBFloat16 && bfloat16_dot_products();
  p.tiles = p.pairs && tile_registers() != TileRegisters::kNone;
  const std::int64_t padding = p.tiles ? 2 * kTileSide : kVectorFloats;
  p.dims_padded = round_up(p.dims, padding);
  p.dims_v_padded = round_up(p.dims_v, padding);
  p.modified = options.bias.defined() || options.alibi_slopes.defined() || options.dropout_p > 0.0f;
  return p;
}

std::size_t attention_table_bytes(const AttentionProblem& problem) {
  std::size_t bytes = table_bytes(problem.query_tiles, 1) + table_bytes(problem.key_tiles, 1);
  if (problem.options->query_documents.defined())
    bytes += table_bytes(problem.query_tiles, problem.batch) +
             table_bytes(problem.key_tiles, problem.batch);
  return bytes;
}

void prepare_attention(AttentionProblem& problem, SpanCutter& cutter) {
  const AttentionOptions& options = *problem.options;
  const IdSource q = positions(options.query_positions, options.query_offset, problem.queries);
  const std::int64_t key_offset = options.key_positions.defined() ? 0 : options.key_offset;
  const IdSource k = positions(options.key_positions, key_offset, problem.keys);
  const Limits limits = limits_of(q, k, "positions");
  problem.position_base = limits.low;
  const TableWriter queries(cutter, problem.query_tiles, 1);
  const TableWriter keys(cutter, problem.key_tiles, 1);
  queries.write(0, q, limits.low);
  keys.write(0, k, limits.low);
  problem.query_positions = queries.first();
  problem.key_positions = keys.first();
  if (options.query_documents.defined()) prepare_documents(problem, cutter);
}

std::int64_t choose_parts(const AttentionProblem& problem, std::int64_t tiles, int threads) {
  const std::int64_t heads = problem.batch * problem.kv_heads;
  const std::int64_t most = std::max<std::int64_t>(tiles, 1);
  for (std::int64_t parts = 1; parts < most; ++parts) {
    const std::int64_t items = heads * parts;
    const std::int64_t rounds = divide_up<std::int64_t>(items, threads);
    if (items * 10 >= rounds * threads * 9) return parts;
  }
  return most;
}

TileMap map_tile(const AttentionProblem& problem, std::int64_t b, std::int64_t query_tile,
                 std::int64_t key_tile) {
  TileMap map;
  const std::int64_t queries = std::min(kTile, problem.queries - query_tile * kTile);
  const std::int64_t keys = std::min(kTile, problem.keys - key_tile * kTile);
  map.query_units = static_cast<int>((queries + kUnit - 1) / kUnit);
  // Panels must cover whole units, padding included: products read those.
  map.query_panels = static_cast<int>((map.query_units * kUnit + kPanel - 1) / kPanel);
  map.key_units = static_cast<int>((keys + kUnit - 1) / kUnit);
  const PairTest test(problem, b);
  map.all =
      problem.limited ? test(&IdTable::tiles, query_tile, &IdTable::tiles, key_tile) : Seen::kAll;
  if (map.all == Seen::kNone) return map;
  if (map.all == Seen::kAll) {
    map_everything(map);
  } else {
    map_ranges(map, test, query_tile, key_tile);
    for (int k = 0; k < map.key_units; ++k)
      for (int p = 0; p < map.query_panels; ++p) {
        const Seen status = test(&IdTable::panels, query_tile * kPanels + p, &IdTable::units,
                                 key_tile * kUnits + k);
        map.used[k][p] = static_cast<std::uint8_t>(status);
        map.zero[k][p] = status == Seen::kNone && in_range(map, k, p);
      }
  }
  // The last unit may hold padding behind the last key.
  if (keys % kUnit != 0)
    for (int p = 0; p < map.query_panels; ++p)
      map.used[map.key_units - 1][p] =
          std::min(map.used[map.key_units - 1][p], static_cast<std::uint8_t>(Seen::kPartly));
  return map;
}

}  // namespace meshloom::kernels::cpu
