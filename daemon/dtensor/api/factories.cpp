// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/factories.h"

#include "daemon/dtensor/api/layout_of.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

struct Part {
  Tensor x;
  Tensor local;
  planner::LocalPart part;  ///< no ranges outside the mesh
};

Part make_part(const Shape& shape, const FactoryOptions& options, const char* name) {
  for (const planner::Placement& p : options.placements)
    check(!p.is_partial(), "{}: a {} placement holds no values of its own", name,
          planner::to_string(p));
  const planner::SpecPtr spec =
      layout_for(options.engine, options.placements, shape, name, options.order);
  const DeviceMesh& mesh = options.engine.context().mesh;
  if (!mesh.member()) {
    const Tensor none = empty_local(options.context, options.dtype);
    return {with_layout(none, spec, options.engine), none, {}};
  }
  planner::LocalPart part = spec->local_part(mesh.coordinates());
  const Tensor local = meshloom::empty(options.context, part.shape, options.dtype);
  return {with_layout(local, spec, options.engine), local, std::move(part)};
}

/// Calls fn(first local element, first global element, count) for all stretches that are
/// contiguous in both.
template <typename Fn>
class Stretches {
 public:
  Stretches(const planner::LocalPart& part, const Shape& global, Fn& fn)
      : part_(part), strides_(contiguous_strides(global)), fn_(fn), inner_(global.size()) {
    while (inner_ > 0 && part.shape[inner_ - 1] == global[inner_ - 1] && plain(inner_ - 1))
      --inner_;
    run_ = inner_ == 0 ? numel(global) : strides_[inner_ - 1];
  }

  void visit() {
    if (inner_ == 0)
      fn_(0, 0, run_);
    else
      visit(0, 0);
  }

 private:
  bool plain(int d) const { return part_.ranges[static_cast<std::size_t>(d)].size() == 1; }

  void visit(int d, std::int64_t global) {
    for (const planner::ShardRange& range : part_.ranges[static_cast<std::size_t>(d)]) {
      if (d == inner_ - 1) {
        const std::int64_t count = range.size() * run_;
        if (count > 0) fn_(local_, global + range.begin * strides_[d], count);
        local_ += count;
        continue;
      }
      for (std::int64_t i = range.begin; i < range.end; ++i) visit(d + 1, global + i * strides_[d]);
    }
  }

  const planner::LocalPart& part_;
  Strides strides_;
  Fn& fn_;
  int inner_;  ///< dims from here on are whole
  std::int64_t run_ = 1;
  std::int64_t local_ = 0;
};

template <typename Fill>
Tensor random_tensor(const Shape& shape, const FactoryOptions& options, const char* name,
                     Fill&& fill) {
  check(dtype_is_floating(options.dtype), "{}: expected a floating dtype, not {}", name,
        dtype_name(options.dtype));
  const Part made = make_part(shape, options, name);
  if (made.local.numel() == 0) return made.x;
  auto stretch = [&](std::int64_t local, std::int64_t global, std::int64_t count) {
    std::byte* data = made.local.template data<std::byte>() +
                      local * static_cast<std::int64_t>(dtype_size(options.dtype));
    fill(make_view(data, options.dtype, {count}, made.local.device()),
         static_cast<std::uint64_t>(global));
  };
  Stretches(made.part, shape, stretch).visit();
  return made.x;
}

}  // namespace

Tensor empty(const Shape& shape, const FactoryOptions& options) {
  return make_part(shape, options, "empty").x;
}

Tensor full(const Shape& shape, double value, const FactoryOptions& options) {
  const Part made = make_part(shape, options, "full");
  options.context.backend().fill(options.context.kernel_context(), made.local.view(), value);
  return made.x;
}

Tensor zeros(const Shape& shape, const FactoryOptions& options) {
  return full(shape, 0.0, options);
}
Tensor ones(const Shape& shape, const FactoryOptions& options) { return full(shape, 1.0, options); }

Tensor rand(const Shape& shape, const PhiloxStream& random, const FactoryOptions& options) {
  return random_tensor(shape, options, "rand", [&](const TensorView& view, std::uint64_t first) {
    options.context.backend().fill_uniform(options.context.kernel_context(), view, random, first,
                                           0.0f, 1.0f);
  });
}

Tensor randn(const Shape& shape, const PhiloxStream& random, const FactoryOptions& options) {
  return random_tensor(shape, options, "randn", [&](const TensorView& view, std::uint64_t first) {
    options.context.backend().fill_normal(options.context.kernel_context(), view, random, first,
                                          0.0f, 1.0f);
  });
}

}  // namespace meshloom::dtensor
