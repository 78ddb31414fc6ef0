// SPDX-License-Identifier: Apache-2.0
// Pieces of tensors: what a rank holds or a file stores, by global index, and copying between them.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/tensor/host_blocks.h"
#include "daemon/train/files/safetensors.h"
#include "daemon/train/files/state_tensor.h"
#include "kernels/base/tensor_view.h"
#include "planner/dim_order.h"

namespace meshloom::train {

/// Returns how many rows are in the first dim of a tensor (one row if it has no dims).
inline std::int64_t row_count(const Shape& shape) { return shape.empty() ? 1 : shape[0]; }

/// Piece is the outer product of one list of global ranges per dim; held row-major in this order. A
/// tensor without dims has no lists and one element.
struct Piece {
  std::vector<planner::IndexRanges> ranges;

  Shape shape() const;
  std::int64_t elements() const { return numel(shape()); }
};

Piece whole_piece(const Shape& shape);
/// Returns what of a piece has these places of one dim, counted inside the piece; rows are those of
/// dim 0. A piece without dims stays as it is.
Piece part_of_piece(const Piece& piece, std::size_t dim, const planner::ShardRange& places);

/// Returns what `rank` of `world_size` holds of a tensor of the state with this shape: all of it if
/// `spec` is null, else its part in the spec, whose mesh is the world.
Piece held_piece(const Shape& shape, const planner::SpecPtr& spec, int rank);
/// Returns the rows of its local tensor that `rank` writes into a checkpoint: ranks that hold the
/// same piece share its rows by the ceil rule.
planner::ShardRange written_rows(const Shape& shape, const planner::SpecPtr& spec, int rank,
                                 int world_size);

/// Copies what both pieces have from one to the other, converting dtype. Views are of the pieces'
/// shapes, any strides, on the context's device. Returns the number of elements copied.
std::int64_t copy_common(ExecutionContext& context, const TensorView& to, const Piece& to_piece,
                         const TensorView& from, const Piece& from_piece);
/// Does what copy_common does, from memory of the host, row-major, whatever device `to` lies on.
std::int64_t copy_common_from_host(HostBlocks& blocks, const TensorView& to, const Piece& to_piece,
                                   const TensorView& from, const Piece& from_piece);
/// Does what copy_common does, from a tensor of a file that holds `from_piece`, row-major. Reads
/// the rows of the first dim that both have, a block at a time; on the CPU, if they are what `to`
/// holds, straight into it. Of a file of another host it asks for the columns (of the second dim)
/// alone that both have, where that saves a quarter of the bytes or more.
std::int64_t read_common(HostBlocks& blocks, const TensorView& to, const Piece& to_piece,
                         const SafetensorsFile& file, const SafetensorsEntry& entry,
                         const Piece& from_piece);

}  // namespace meshloom::train
