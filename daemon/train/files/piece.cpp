// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/piece.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// Read and copied at a time: small enough that the copy finds the bytes in the cache; more where
/// another host is asked for them.
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kRemoteBlockBytes = std::uint64_t{8} << 20;

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

/// From the first to the last column of a stored tensor that a rank needs; all of them where
/// leaving some out does not pay.
planner::ShardRange columns_to_read(const Piece& to, const Piece& from, bool leave_out) {
  if (from.ranges.size() < 2) return {0, 1};
  const planner::ShardRange all = {0, total(from.ranges[1])};
  if (!leave_out) return all;
  planner::ShardRange needed = {all.end, 0};
  for (const Run& run : common_runs(to.ranges[1], from.ranges[1])) {
    needed.begin = std::min(needed.begin, run.from);
    needed.end = std::max(needed.end, run.from + run.count);
  }
  return needed.begin < needed.end && 4 * needed.size() <= 3 * all.size() ? needed : all;
}

/// How the rows of a stored tensor are read, a block at a time.
struct BlockRows {
  planner::ShardRange columns;  ///< that are read
  std::uint64_t bytes = 0;      ///< of a whole row
  std::uint64_t column_bytes = 0;
  std::int64_t most = 1;  ///< rows at a time

  /// Of elements of `dtype`, some in each piece; `block` is about how many bytes are read at a
  /// time.
  BlockRows(const Piece& to, const Piece& from, DType dtype, bool leave_out, std::uint64_t block)
      : columns(columns_to_read(to, from, leave_out)) {
    const Shape stored = from.shape();
    bytes = static_cast<std::uint64_t>(numel(stored) / row_count(stored)) * dtype_size(dtype);
    column_bytes = bytes / static_cast<std::uint64_t>(stored.size() < 2 ? 1 : stored[1]);
    most = static_cast<std::int64_t>(std::max<std::uint64_t>(1, block / read_bytes()));
  }

  std::uint64_t read_bytes() const {
    return static_cast<std::uint64_t>(columns.size()) * column_bytes;
  }
  base::Stripes stripes(const planner::ShardRange& rows) const {
    return {static_cast<std::uint64_t>(rows.begin) * bytes +
                static_cast<std::uint64_t>(columns.begin) * column_bytes,
            read_bytes(), bytes, static_cast<std::uint64_t>(rows.size())};
  }
  Piece piece(const Piece& from, const planner::ShardRange& rows) const {
    const Piece part = part_of_piece(from, 0, rows);
    return part.ranges.size() < 2 ? part : part_of_piece(part, 1, columns);
  }
};

/// Rows of the first dim that both pieces have; a tensor without dims has one.
std::vector<Run> common_rows(const Piece& to, const Piece& from) {
  if (from.ranges.empty()) return {{0, 0, 1}};
  return common_runs(to.ranges[0], from.ranges[0]);
}

/// Whether rows of the one piece are rows of the other, element by element and byte by byte.
bool same_rows(const TensorView& to, const Piece& to_piece, DType dtype, const Piece& from_piece) {
  return to.contiguous() && to.dtype == dtype &&
         (from_piece.ranges.empty() ||
          std::equal(to_piece.ranges.begin() + 1, to_piece.ranges.end(),
                     from_piece.ranges.begin() + 1, from_piece.ranges.end()));
}

/// Copies what both pieces have of elements of `dtype`, whose bytes `read(stripes, out)` gives.
template <typename Read>
std::int64_t copy_blocks(HostBlocks& blocks, const TensorView& to, const Piece& to_piece,
                         DType dtype, const Piece& from_piece, const BlockRows& rows,
                         const Read& read) {
  std::int64_t copied = 0;
  for (const Run& run : common_rows(to_piece, from_piece)) {
    for (std::int64_t at = run.from; at < run.from + run.count; at += rows.most) {
      const planner::ShardRange part = {at, std::min(at + rows.most, run.from + run.count)};
      const Piece piece = rows.piece(from_piece, part);
      blocks.to_device(
          dtype, piece.shape(), [&](std::span<std::byte> out) { read(rows.stripes(part), out); },
          [&](const TensorView& block) {
            copied += copy_common(blocks.context(), to, to_piece, block, piece);
          });
    }
  }
  return copied;
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

Piece part_of_piece(const Piece& piece, std::size_t dim, const planner::ShardRange& places) {
  if (piece.ranges.empty()) return piece;
  Piece part = piece;
  part.ranges[dim].clear();
  std::int64_t at = 0;
  for (const planner::ShardRange& range : piece.ranges[dim]) {
    const std::int64_t begin = std::max(places.begin, at),
                       end = std::min(places.end, at + range.size());
    if (begin < end) part.ranges[dim].push_back({range.begin + begin - at, range.begin + end - at});
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
  // This rank's number among those that hold the same piece, and how many they are.
  int index = rank, count = world_size;
  if (spec) {
    const std::vector<int> coordinates = spec->mesh().coordinates(rank);
    index = 0;
    count = 1;
    for (int m = 0; m < spec->mesh().ndim(); ++m) {
      if (!spec->placement(m).is_replicate()) continue;
      index = index * spec->mesh().dim_size(m) + coordinates[static_cast<std::size_t>(m)];
      count *= spec->mesh().dim_size(m);
    }
  }
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

std::int64_t copy_common_from_host(HostBlocks& blocks, const TensorView& to, const Piece& to_piece,
                                   const TensorView& from, const Piece& from_piece) {
  if (to.device == kCpuDevice) return copy_common(blocks.context(), to, to_piece, from, from_piece);
  check_internal(from.contiguous(), "a piece on the host is not contiguous");
  if (from.numel() == 0 || to.numel() == 0) return 0;
  const BlockRows rows(to_piece, from_piece, from.dtype, /*leave_out=*/true, kBlockBytes);
  return copy_blocks(blocks, to, to_piece, from.dtype, from_piece, rows,
                     [&](const base::Stripes& stripes, std::span<std::byte> out) {
                       const std::byte* row = from.as<std::byte>() + stripes.offset;
                       for (std::uint64_t i = 0; i < stripes.count; ++i)
                         std::memcpy(out.data() + i * stripes.bytes, row + i * stripes.stride,
                                     stripes.bytes);
                     });
}

std::int64_t read_common(HostBlocks& blocks, const TensorView& to, const Piece& to_piece,
                         const SafetensorsFile& file, const SafetensorsEntry& entry,
                         const Piece& from_piece) {
  if (from_piece.elements() == 0 || to.numel() == 0) return 0;
  const BlockRows rows(to_piece, from_piece, entry.dtype, file.is_remote(),
                       file.is_remote() ? kRemoteBlockBytes : kBlockBytes);
  if (to.device != kCpuDevice || !same_rows(to, to_piece, entry.dtype, from_piece))
    return copy_blocks(blocks, to, to_piece, entry.dtype, from_piece, rows,
                       [&](const base::Stripes& stripes, std::span<std::byte> out) {
                         file.read_stripes(entry, stripes, out);
                       });
  std::int64_t copied = 0;
  for (const Run& run : common_rows(to_piece, from_piece)) {
    const std::span out(to.as<std::byte>() + static_cast<std::uint64_t>(run.to) * rows.bytes,
                        static_cast<std::uint64_t>(run.count) * rows.bytes);
    file.read(entry, static_cast<std::uint64_t>(run.from) * rows.bytes, out);
    copied += static_cast<std::int64_t>(out.size() / dtype_size(to.dtype));
  }
  return copied;
}

}  // namespace meshloom::train
