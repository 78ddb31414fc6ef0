// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/checkpoint/piece.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// Read and copied at a time: small enough that the copy finds the bytes in the cache.
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

/// Equally many neighbouring elements of a dim in both pieces.
struct Run {
  std::int64_t from = 0, to = 0, count = 0;  ///< places inside the pieces
};

std::int64_t total(const planner::IndexRanges& ranges) {
  std::int64_t sum = 0;
  for (const planner::ShardRange& range : ranges) sum += range.size();
  return sum;
}

std::vector<Run> common_runs(const planner::IndexRanges& to, const planner::IndexRanges& from) {
  std::vector<Run> runs;
  std::int64_t to_at = 0;
  for (const planner::ShardRange& t : to) {
    std::int64_t from_at = 0;
    for (const planner::ShardRange& f : from) {
      const std::int64_t begin = std::max(t.begin, f.begin), end = std::min(t.end, f.end);
      if (begin < end)
        runs.push_back({from_at + begin - f.begin, to_at + begin - t.begin, end - begin});
      from_at += f.size();
    }
    to_at += t.size();
  }
  return runs;
}

TensorView narrow(TensorView view, int dim, std::int64_t begin, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) +
              begin * view.strides[dim] * static_cast<std::int64_t>(dtype_size(view.dtype));
  view.shape[dim] = count;
  return view;
}

std::int64_t copy_runs(ExecutionContext& context, const TensorView& to, const TensorView& from,
                       const std::vector<std::vector<Run>>& runs, std::size_t dim) {
  if (dim == runs.size()) {
    context.backend().copy(context.kernel_context(), to, from);
    return to.numel();
  }
  std::int64_t copied = 0;
  for (const Run& run : runs[dim]) {
    const int d = static_cast<int>(dim);
    copied += copy_runs(context, narrow(to, d, run.to, run.count),
                        narrow(from, d, run.from, run.count), runs, dim + 1);
  }
  return copied;
}

/// This rank's number among those that hold the same piece, and how many they are.
std::pair<int, int> replica_of(const planner::DTensorSpec& spec, int rank) {
  const std::vector<int> coordinates = spec.mesh().coordinates(rank);
  int index = 0, count = 1;
  for (int m = 0; m < spec.mesh().ndim(); ++m) {
    if (!spec.placement(m).is_replicate()) continue;
    index = index * spec.mesh().dim_size(m) + coordinates[static_cast<std::size_t>(m)];
    count *= spec.mesh().dim_size(m);
  }
  return {index, count};
}

}  // namespace

Shape Piece::shape() const {
  Shape shape;
  for (const planner::IndexRanges& dim : ranges) shape.push_back(total(dim));
  return shape;
}

Piece whole_piece(const Shape& shape) {
  Piece piece;
  for (const std::int64_t size : shape) {
    piece.ranges.emplace_back();
    if (size > 0) piece.ranges.back().push_back({0, size});
  }
  return piece;
}

Piece rows_of_piece(const Piece& piece, const planner::ShardRange& rows) {
  if (piece.ranges.empty()) return piece;
  Piece part = piece;
  part.ranges[0].clear();
  std::int64_t at = 0;
  for (const planner::ShardRange& range : piece.ranges[0]) {
    const std::int64_t begin = std::max(rows.begin, at),
                       end = std::min(rows.end, at + range.size());
    if (begin < end) part.ranges[0].push_back({range.begin + begin - at, range.begin + end - at});
    at += range.size();
  }
  return part;
}

Piece held_piece(const Shape& shape, const planner::SpecPtr& spec, int rank) {
  if (!spec) return whole_piece(shape);
  const planner::LocalPart part = spec->local_part(spec->mesh().coordinates(rank));
  if (!part.is_product())
    throw Unimplemented(
        fmt::format("a checkpoint holds pieces that are products of ranges; a tensor of {} in {} "
                    "has other elements in every row",
                    to_string(spec->shape()), to_string(*spec)));
  return {part.product()};
}

planner::ShardRange written_rows(const Shape& shape, const planner::SpecPtr& spec, int rank,
                                 int world_size) {
  const auto [index, count] =
      spec ? replica_of(*spec, rank) : std::pair<int, int>{rank, world_size};
  return planner::shard_range(row_count(held_piece(shape, spec, rank).shape()), count, index);
}

std::int64_t copy_common(ExecutionContext& context, const TensorView& to, const Piece& to_piece,
                         const TensorView& from, const Piece& from_piece) {
  check_internal(to_piece.ranges.size() == from_piece.ranges.size(),
                 "pieces of {} and {} dims are of different tensors", to_piece.ranges.size(),
                 from_piece.ranges.size());
  std::vector<std::vector<Run>> runs;
  for (std::size_t d = 0; d < to_piece.ranges.size(); ++d) {
    runs.push_back(common_runs(to_piece.ranges[d], from_piece.ranges[d]));
    if (runs.back().empty()) return 0;
  }
  return copy_runs(context, to, from, runs, 0);
}

std::int64_t read_common(ExecutionContext& context, const TensorView& to, const Piece& to_piece,
                         const SafetensorsFile& file, const SafetensorsEntry& entry,
                         const Piece& from_piece) {
  const Shape stored = from_piece.shape();
  const std::int64_t rows = row_count(stored);
  if (numel(stored) == 0 || to.numel() == 0) return 0;
  const std::uint64_t row_bytes = (entry.end - entry.begin) / static_cast<std::uint64_t>(rows);
  const auto wanted = stored.empty() ? std::vector<Run>{{0, 0, 1}}
                                     : common_runs(to_piece.ranges[0], from_piece.ranges[0]);
  const bool straight =
      to.contiguous() && to.dtype == entry.dtype &&
      (stored.empty() || std::equal(to_piece.ranges.begin() + 1, to_piece.ranges.end(),
                                    from_piece.ranges.begin() + 1, from_piece.ranges.end()));
  const auto most = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kBlockBytes / row_bytes));
  std::vector<std::byte> block;
  std::int64_t copied = 0;
  for (const Run& run : wanted) {
    if (straight) {
      const std::span out(
          static_cast<std::byte*>(to.data) + static_cast<std::uint64_t>(run.to) * row_bytes,
          static_cast<std::uint64_t>(run.count) * row_bytes);
      file.read(entry, static_cast<std::uint64_t>(run.from) * row_bytes, out);
      copied += static_cast<std::int64_t>(out.size() / dtype_size(to.dtype));
      continue;
    }
    for (std::int64_t at = run.from; at < run.from + run.count; at += most) {
      const planner::ShardRange part = {at, std::min(at + most, run.from + run.count)};
      block.resize(static_cast<std::uint64_t>(part.size()) * row_bytes);
      file.read(entry, static_cast<std::uint64_t>(at) * row_bytes, block);
      const Piece piece = rows_of_piece(from_piece, part);
      copied += copy_common(context, to, to_piece,
                            make_view(block.data(), entry.dtype, piece.shape()), piece);
    }
  }
  return copied;
}

}  // namespace meshloom::train
