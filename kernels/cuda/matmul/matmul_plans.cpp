// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/matmul_plans.h"

#include <string>

#include "kernels/cuda/matmul/matmul_table.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/runtime/library_versions.h"

namespace meshloom::kernels::cuda {
namespace {

struct PlanKey {
  int device, kernel;
  MatmulShape shape;

  auto operator<=>(const PlanKey&) const = default;
};

}  // namespace

std::shared_ptr<MatmulPlan> matmul_plan_of(int device, const MatmulShape& shape, int kernel) {
  // Kept until the process ends: the driver may be gone when statics are destroyed.
  static auto* const plans = new PlanCache<PlanKey, MatmulPlan>;
  return plans->find_or_create({device, kernel, shape}, [&] {
    if (kernel != kTablesKernel) return create_matmul_plan(device, shape, kernel);
    static const std::string libraries = library_versions();
    return create_matmul_plan(device, shape,
                              choose_matmul_kernel(device_class(device), libraries, shape));
  });
}

}  // namespace meshloom::kernels::cuda
