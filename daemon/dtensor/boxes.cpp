// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/boxes.h"

#include <algorithm>

namespace meshloom::dtensor {
namespace {

/// Elements of one dim that both hold, next to each other in both.
struct Run {
  std::int64_t from, to, size;
};

struct PlacedRange {
  planner::ShardRange range;
  std::int64_t place;  ///< in the local tensor
};

std::vector<PlacedRange> place_ranges(const planner::IndexRanges& ranges) {
  std::vector<PlacedRange> placed;
  std::int64_t place = 0;
  for (const planner::ShardRange& range : ranges) {
    if (range.size() > 0) placed.push_back({range, place});
    place += range.size();
  }
  return placed;
}

std::vector<Run> common_runs(const planner::IndexRanges& from, const planner::IndexRanges& to) {
  std::vector<PlacedRange> sources = place_ranges(from);
  std::sort(sources.begin(), sources.end(), [](const PlacedRange& a, const PlacedRange& b) {
    return a.range.begin < b.range.begin;
  });
  std::vector<Run> runs;
  for (const PlacedRange& target : place_ranges(to)) {
    auto source = std::partition_point(sources.begin(), sources.end(), [&](const PlacedRange& s) {
      return s.range.end <= target.range.begin;
    });
    for (; source != sources.end() && source->range.begin < target.range.end; ++source) {
      const std::int64_t begin = std::max(source->range.begin, target.range.begin);
      const std::int64_t end = std::min(source->range.end, target.range.end);
      runs.push_back({source->place + begin - source->range.begin,
                      target.place + begin - target.range.begin, end - begin});
    }
  }
  return runs;
}

TensorView window(const TensorView& view, const Dims& first, const Shape& size) {
  std::int64_t offset = 0;
  for (int d = 0; d < size.size(); ++d) offset += first[d] * view.strides[d];
  TensorView part = view;
  part.data = view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
  part.shape = size;
  return part;
}

/// Calls fn(box, packed block) for all boxes.
template <typename Fn>
void for_each_packed(const Boxes& boxes, const TensorView& like, void* packed, Fn&& fn) {
  auto* at = static_cast<std::byte*>(packed);
  for (const Box& box : boxes) {
    const TensorView block = make_view(at, like.dtype, box.size, like.device);
    fn(box, block);
    at += block.bytes();
  }
}

}  // namespace

Boxes common_boxes(const planner::LocalPart& from, const planner::LocalPart& to) {
  if (numel(from.shape) == 0 || numel(to.shape) == 0) return {};
  Boxes boxes = {Box{}};
  for (std::size_t d = 0; d < to.ranges.size(); ++d) {
    const std::vector<Run> runs = common_runs(from.ranges[d], to.ranges[d]);
    Boxes longer;
    longer.reserve(boxes.size() * runs.size());
    for (const Box& box : boxes) {
      for (const Run& run : runs) {
        Box& next = longer.emplace_back(box);
        next.from.push_back(run.from);
        next.to.push_back(run.to);
        next.size.push_back(run.size);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

std::int64_t count_elements(const Boxes& boxes) {
  std::int64_t count = 0;
  for (const Box& box : boxes) count += numel(box.size);
  return count;
}

bool covers(const Boxes& boxes, const Shape& shape) {
  return boxes.size() == 1 && boxes[0].size == shape;
}

std::int64_t dense_offset(const Dims& first, const Shape& size, const Shape& shape) {
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  bool cut = false;  // a dim further in is not taken whole
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (cut && size[d] != 1) return -1;
    cut = cut || size[d] != shape[d];
    offset += first[d] * stride;
    stride *= shape[d];
  }
  return offset;
}

void copy_boxes(const kernels::KernelContext& context, kernels::Backend& backend,
                const Boxes& boxes, const TensorView& to, const TensorView& from) {
  for (const Box& box : boxes)
    backend.copy(context, window(to, box.to, box.size), window(from, box.from, box.size));
}

void pack_boxes(const kernels::KernelContext& context, kernels::Backend& backend,
                const Boxes& boxes, void* packed, const TensorView& from) {
  for_each_packed(boxes, from, packed, [&](const Box& box, const TensorView& block) {
    backend.copy(context, block, window(from, box.from, box.size));
  });
}

void unpack_boxes(const kernels::KernelContext& context, kernels::Backend& backend,
                  const Boxes& boxes, const TensorView& to, void* packed) {
  for_each_packed(boxes, to, packed, [&](const Box& box, const TensorView& block) {
    backend.copy(context, window(to, box.to, box.size), block);
  });
}

}  // namespace meshloom::dtensor
