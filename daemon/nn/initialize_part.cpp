// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/initialize_part.h"

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

/// Fills a part run by run; a run is a stretch that is contiguous in the whole tensor too.
class PartFiller {
 public:
  PartFiller(const Tensor& dst, const Init& init, const PhiloxStream& stream, const Shape& whole,
             const std::vector<planner::IndexRanges>& ranges)
      : dst_(dst),
        init_(init),
        stream_(stream),
        strides_(contiguous_strides(whole)),
        ranges_(ranges),
        run_dim_(whole.size()) {
    // Dims behind run_dim_ are there in full.
    while (run_dim_ > 0 && is_full(run_dim_ - 1, whole)) --run_dim_;
    if (run_dim_ > 0) --run_dim_;
  }

  void fill() {
    if (dst_.numel() > 0) fill_dim(0, 0, false);
  }

 private:
  bool is_full(int dim, const Shape& whole) const {
    const planner::IndexRanges& list = ranges_[static_cast<std::size_t>(dim)];
    return list.size() == 1 && list[0].begin == 0 && list[0].end == whole[dim];
  }

  void fill_dim(int dim, std::int64_t global, bool zero) {
    if (dim == static_cast<int>(ranges_.size())) return fill_run(global, 1, zero);
    for (const planner::ShardRange& range : ranges_[static_cast<std::size_t>(dim)]) {
      if (dim == run_dim_ && !(dim == 0 && init_.zero_row >= 0)) {
        fill_run(global + range.begin * strides_[dim], range.size() * strides_[dim], zero);
        continue;
      }
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        const bool zero_row = zero || (dim == 0 && i == init_.zero_row);
        const std::int64_t next = global + i * strides_[dim];
        if (dim == run_dim_) {
          fill_run(next, strides_[dim], zero_row);
        } else {
          fill_dim(dim + 1, next, zero_row);
        }
      }
    }
  }

  void fill_run(std::int64_t global, std::int64_t count, bool zero) {
    const TensorView all = dst_.view();
    auto* data = static_cast<std::byte*>(all.data) +
                 filled_ * static_cast<std::int64_t>(dtype_size(all.dtype));
    const TensorView run = make_view(data, all.dtype, {count}, all.device);
    const ExecutionContext& context = dst_.context();
    if (zero) {
      context.backend().fill(context.kernel_context(), run, 0.0);
    } else {
      context.backend().fill_normal(context.kernel_context(), run, stream_,
                                    static_cast<std::uint64_t>(global), 0.0f, init_.std);
    }
    filled_ += count;
  }

  const Tensor& dst_;
  const Init& init_;
  PhiloxStream stream_;
  Strides strides_;
  const std::vector<planner::IndexRanges>& ranges_;
  int run_dim_;
  std::int64_t filled_ = 0;
};

}  // namespace

void initialize_part(const Tensor& dst, const std::string& name, const Init& init,
                     std::uint64_t seed, const Shape& whole,
                     const std::vector<planner::IndexRanges>& ranges) {
  check_internal(static_cast<int>(ranges.size()) == whole.size() && dst.contiguous(),
                 "initialize_part: {} is given for {} lists of ranges", name, ranges.size());
  const ExecutionContext& context = dst.context();
  if (init.kind != Init::Kind::kNormal) {
    context.backend().fill(context.kernel_context(), dst.view(),
                           init.kind == Init::Kind::kOnes ? 1.0 : 0.0);
    return;
  }
  PartFiller(dst, init, parameter_stream(name, seed), whole, ranges).fill();
}

}  // namespace meshloom::nn
