// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/factories.h"

#include "daemon/dtensor/api/layout_of.h"
#include "daemon/dtensor/outside_mesh.h"
#include "daemon/tensor/ops/part_positions.h"
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
    const Tensor none = outside_local(options.context, shape, options.dtype);
    return {with_layout(none, spec, options.engine), none, {}};
  }
  planner::LocalPart part = spec->local_part(mesh.coordinates());
  const Tensor local = meshloom::empty(options.context, part.shape(), options.dtype);
  return {with_layout(local, spec, options.engine), local, std::move(part)};
}

template <typename Fill>
Tensor random_tensor(const Shape& shape, const FactoryOptions& options, const char* name,
                     Fill&& fill) {
  check(dtype_is_floating(options.dtype), "{}: expected a floating dtype, not {}", name,
        dtype_name(options.dtype));
  const Part made = make_part(shape, options, name);
  if (made.local.numel() == 0) return made.x;
  const auto stretch = [&](std::int64_t local, std::int64_t count, std::int64_t global) {
    std::byte* data = made.local.template data<std::byte>() +
                      local * static_cast<std::int64_t>(dtype_size(options.dtype));
    fill(make_view(data, options.dtype, {count}, made.local.device()),
         static_cast<std::uint64_t>(global));
  };
  ops::for_each_run(shape, made.part, stretch);
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
