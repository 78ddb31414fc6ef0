// SPDX-License-Identifier: Apache-2.0
// Tensors of many ranks: a matrix product whose operands lie on a mesh in pieces of uneven sizes,
// its gradient, and the same by collectives that speak of ranks instead of layouts.
#include "../report.h"
#include "daemon/dtensor/api/collectives.h"
#include "daemon/dtensor/api/distribute_tensor.h"
#include "daemon/dtensor/api/equal.h"
#include "daemon/dtensor/api/factories.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/reduce.h"
#include "planner/dtensor_spec.h"

namespace meshloom::examples {
namespace {

using planner::Placement;
using planner::Placements;

const Placements kRows = {Placement::shard(0)};
const Placements kColumns = {Placement::shard(1)};
const Placements kWhole = {Placement::replicate()};

/// A rank with a mesh of one dim, and what one rank alone computes of the same numbers.
struct Product {
  ExecutionContext& context;
  dtensor::DeviceMesh& mesh;
  dtensor::DistributedEngine& engine;
  Tensor a, b;              ///< [7, 5] in rows and [5, 3] whole, on the mesh
  Tensor whole_a, whole_b;  ///< plain, on every rank
  Tensor whole;             ///< their product

  Product(ExecutionContext& rank_context, dtensor::DeviceMesh& rank_mesh,
          dtensor::DistributedEngine& layouts)
      : context(rank_context), mesh(rank_mesh), engine(layouts) {
    // Element i is number i of a random stream, whatever the mesh and the layout.
    a = dtensor::randn({7, 5}, {.seed = 1}, {context, engine, kRows});
    b = dtensor::rand({5, 3}, {.seed = 2}, {context, engine, kWhole});
    whole_a = dtensor::full_tensor(a);
    whole_b = dtensor::full_tensor(b);
    whole = ops::matmul(whole_a, whole_b);
  }
};

/// Its layout, and how much of it rank 0 has.
std::string describe(const Tensor& x) {
  return fmt::format("{}, {} on rank 0", *x.layout()->spec, dtensor::to_local(x).shape());
}

/// Tensors that nobody sends: each rank makes its part.
void make_parts(Product& p, Report& report) {
  const dtensor::FactoryOptions rows{p.context, p.engine, kRows};
  const Tensor three =
      ops::add(dtensor::zeros({7, 5}, rows),
               ops::add(dtensor::ones({7, 5}, rows), dtensor::full({7, 5}, 2.0, rows)));
  report.check_near("zeros, ones and full add up", dtensor::full_tensor(three).to_vector(),
                    std::vector<double>(35, 3.0), 0.0);
  report.check(
      "an empty tensor has as much on a rank as one with values",
      dtensor::to_local(dtensor::empty({7, 5}, rows)).shape() == dtensor::to_local(p.a).shape());
}

/// Ops keep layouts where they can and move data where they must; results are those of one rank.
void multiply(Product& p, Report& report) {
  p.mesh.reset_counters();
  const Tensor product = ops::matmul(p.a, p.b);
  std::uint64_t calls = 0;
  for (const auto& [collective, counter] : p.mesh.counters()) calls += counter.calls;
  report.say("a: {}\nb: {}\na b: {}", describe(p.a), describe(p.b), describe(product));
  report.check("rows times a whole matrix sends nothing", calls == 0);
  report.check_near("the product is that of one rank", dtensor::full_tensor(product).to_vector(),
                    p.whole.to_vector(), 1e-5);

  const Tensor columns = dtensor::redistribute(product, kColumns);
  report.say("redistributed: {}", describe(columns));
  report.check("another layout of the same tensor is equal", dtensor::equal(product, columns));

  // The dim that is summed over lies on the ranks: each has a summand of the whole product.
  const Tensor summands =
      ops::matmul(dtensor::redistribute(p.a, kColumns), dtensor::redistribute(p.b, kRows));
  report.say("over the inner dim: {}", describe(summands));
  report.check_near("summands add up to the product", dtensor::full_tensor(summands).to_vector(),
                    p.whole.to_vector(), 1e-5);
}

/// Backward runs through redistributions and leaves gradients in the layouts of the leaves.
void differentiate(Product& p, Report& report) {
  Tensor whole_weight = empty_like(p.whole_b);
  copy_into(whole_weight, p.whole_b);
  whole_weight.set_requires_grad(true);
  const Tensor weight = dtensor::distribute_tensor(whole_weight, p.engine, kColumns);
  const auto loss = [](const Tensor& y) { return ops::sum(ops::mul(y, y)); };
  autograd::backward(loss(ops::matmul(p.a, weight)));
  autograd::backward(loss(ops::matmul(p.whole_a, whole_weight)));
  report.say("the gradient of b: {}", describe(weight.grad()));
  report.check_near("gradients are those of one rank",
                    dtensor::full_tensor(weight.grad()).to_vector(),
                    whole_weight.grad().to_vector(), 1e-4);
}

/// What redistribution does, by hand: plain tensors and a group of ranks.
void speak_of_ranks(Product& p, Report& report) {
  comm::ProcessGroup& group = p.mesh.group(0);
  const Tensor rows = dtensor::to_local(p.a);  // as many as this rank has
  report.check_near("all_gather joins pieces of unlike sizes",
                    dtensor::all_gather(rows, 0, group).to_vector(), p.whole_a.to_vector(), 0.0);

  const Tensor columns_of_a = dtensor::to_local(dtensor::redistribute(p.a, kColumns));
  const Tensor rows_of_b = dtensor::to_local(dtensor::redistribute(p.b, kRows));
  const Tensor summand = ops::matmul(columns_of_a, rows_of_b);
  report.check_near("all_reduce adds summands", dtensor::all_reduce(summand, group).to_vector(),
                    p.whole.to_vector(), 1e-5);
  const Tensor mine = group.rank() == 0 ? p.whole_b : empty_like(p.whole_b);
  report.check_near("broadcast gives every rank the root's",
                    dtensor::broadcast(mine, 0, group).to_vector(), p.whole_b.to_vector(), 0.0);
  std::vector<double> one_of_each;  // this rank's rows, as often as there are ranks
  for (int rank = 0; rank < group.size(); ++rank)
    for (const double value : rows.to_vector()) one_of_each.push_back(value);
  report.check_near("all_to_all sends a rank its rows of what each has",
                    dtensor::all_to_all(p.whole_a, 0, group).to_vector(), one_of_each, 0.0);
  report.check_near("reduce_scatter leaves a rank its rows of the sum",
                    dtensor::reduce_scatter(summand, 0, group).to_vector(),
                    dtensor::to_local(ops::matmul(p.a, p.b)).to_vector(), 1e-5);
}

void run(comm::RankRuntime& runtime, Report& report) {
  const auto world = runtime.make_world_group();
  ExecutionContext context;
  dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"ranks", world->size()}}));
  planner::PlanCache plans;
  dtensor::DistributedEngine engine({mesh, plans});
  report.say("distributed tensors on {}", *mesh.layout());

  Product product(context, mesh, engine);
  make_parts(product, report);
  multiply(product, report);
  differentiate(product, report);
  speak_of_ranks(product, report);
}

}  // namespace
}  // namespace meshloom::examples

int main() { return meshloom::examples::run_ranks(meshloom::examples::run); }
