// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/redistribute.h"

#include <gtest/gtest.h>

#include <random>

#include "daemon/dtensor/redistribute_specs.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/random_rows.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::dtensor {
namespace {

using planner::MeshDim;
using planner::MeshLayout;
using planner::SpecPtr;
using test::expect_local;
using test::make_local;
using test::make_spec;

MeshLayout mesh_of(const std::vector<int>& sizes) {
  std::vector<MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  return MeshLayout(dims);
}

/// What a rank of a test has.
struct Rank {
  ExecutionContext& context;
  comm::ProcessGroup& world;
  DeviceMesh& mesh;
  planner::PlanCache& plans;

  MeshContext on_mesh() { return {mesh, plans}; }
  std::uint64_t calls(const std::string& name) const {
    const auto counters = mesh.counters();
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second.calls;
  }
  std::uint64_t all_calls() const {
    std::uint64_t sum = 0;
    for (const auto& [name, counter] : mesh.counters()) sum += counter.calls;
    return sum;
  }
};

void on_mesh(const std::vector<int>& sizes, const std::function<void(Rank&)>& body,
             const planner::RedistributeOptions& options = {}) {
  const MeshLayout layout = mesh_of(sizes);
  testing::run_thread_ranks(layout.size(), [&](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    testing::TestContext context;
    DeviceMesh mesh(*world, layout);
    planner::PlanCache plans(options);
    Rank rank{context, *world, mesh, plans};
    body(rank);
  });
}

/// from -> to of values, and back as a gradient; true where the numbers are right.
void check_round(Rank& rank, const SpecPtr& from, const SpecPtr& to, DType dtype) {
  const std::vector<int>& at = rank.mesh.coordinates();
  Tensor x = make_local(rank.context, *from, at, dtype);
  if (dtype_is_floating(dtype)) x.set_requires_grad(true);
  const SpecPtr grad_to = without_partial(to), grad_from = without_partial(from);
  const Tensor y = redistribute_local(x, {from, to, grad_to, grad_from}, rank.on_mesh());
  ASSERT_EQ(y.dtype(), dtype);
  expect_local(y, *to, at, test::partial_factor(*from));
  if (!dtype_is_floating(dtype)) return;
  // Only where there is nothing to do is there nothing to record.
  ASSERT_EQ(y.grad_fn() == nullptr, y.impl() == x.impl());
  const Tensor outputs[] = {y};
  const Tensor grads[] = {make_local(rank.context, *grad_to, at, dtype)};
  autograd::backward(outputs, grads);
  expect_local(x.grad(), *grad_from, at);
}

TEST(Redistribute, OneDimTable) {
  // behaviours.md 4.2, sizes and counts; backward is checked with its count.
  struct Row {
    const char *from, *to, *forward, *backward;
  };
  const Row rows[] = {{"S(0)", "R", "all_gather", ""},
                      {"R", "R", "", ""},
                      {"R", "S(0)", "", "all_gather"},
                      {"P", "R", "all_reduce", ""},
                      {"P", "S(0)", "reduce_scatter", "all_gather"},
                      {"S(0)", "S(1)", "all_to_all", "all_to_all"},
                      {"S(1)", "R", "all_gather", ""},
                      {"S(1)", "S(0)", "all_to_all", "all_to_all"},
                      {"P(avg)", "S(1)", "reduce_scatter", "all_gather"},
                      {"P(max)", "R", "all_reduce", ""},
                      {"P(min)", "S(0)", "reduce_scatter", "all_gather"}};
  on_mesh({4}, [&](Rank& rank) {
    for (const Shape& shape :
         {Shape{12, 3}, Shape{13, 3}, Shape{14, 3}, Shape{3, 13}, Shape{1, 1}, Shape{0, 5}}) {
      for (const Row& row : rows) {
        const SpecPtr from = make_spec(rank.mesh, {row.from}, shape);
        const SpecPtr to = make_spec(rank.mesh, {row.to}, shape);
        const std::vector<int>& at = rank.mesh.coordinates();
        Tensor x = make_local(rank.context, *from, at);
        x.set_requires_grad(true);
        rank.mesh.reset_counters();
        const SpecPtr grad_to = without_partial(to), grad_from = without_partial(from);
        const Tensor y = redistribute_local(x, {from, to, grad_to, grad_from}, rank.on_mesh());
        expect_local(y, *to, at, test::partial_factor(*from));
        EXPECT_EQ(rank.all_calls(), *row.forward ? 1u : 0u) << row.from << " -> " << row.to;
        if (*row.forward) {
          EXPECT_EQ(rank.calls(row.forward), 1u);
        }
        rank.mesh.reset_counters();
        EXPECT_EQ(y.grad_fn() == nullptr, y.impl() == x.impl());
        const Tensor outputs[] = {y}, grads[] = {make_local(rank.context, *grad_to, at)};
        autograd::backward(outputs, grads);
        expect_local(x.grad(), *grad_from, at);
        EXPECT_EQ(rank.all_calls(), *row.backward ? 1u : 0u) << row.from << " -> " << row.to;
        if (*row.backward) {
          EXPECT_EQ(rank.calls(row.backward), 1u);
        }
      }
    }
  });
}

TEST(Redistribute, PartialGradientIsReducedInBackward) {
  on_mesh({4}, [](Rank& rank) {
    const Shape shape{8, 3};
    const SpecPtr whole = make_spec(rank.mesh, {"R"}, shape),
                  sharded = make_spec(rank.mesh, {"S(0)"}, shape),
                  partial = make_spec(rank.mesh, {"P"}, shape);
    Tensor x = make_local(rank.context, *sharded, rank.mesh.coordinates());
    x.set_requires_grad(true);
    const Tensor y = redistribute_local(x, {sharded, whole, partial, sharded}, rank.on_mesh());
    Tensor z = make_local(rank.context, *whole, rank.mesh.coordinates());
    z.set_requires_grad(true);
    const Tensor w = redistribute_local(z, {whole, whole, partial, whole}, rank.on_mesh());
    rank.mesh.reset_counters();
    const Tensor outputs[] = {y, w};
    const Tensor grads[] = {full(rank.context, shape, 1.0, DType::kFloat32),
                            full(rank.context, shape, 1.0, DType::kFloat32)};
    autograd::backward(outputs, grads);
    for (const double g : x.grad().to_vector()) EXPECT_EQ(g, 4.0);
    for (const double g : z.grad().to_vector()) EXPECT_EQ(g, 4.0);
    EXPECT_EQ(rank.calls("reduce_scatter"), 1u);
    EXPECT_EQ(rank.calls("all_reduce"), 1u);
  });
}

TEST(Redistribute, IntoPartial) {
  on_mesh({2, 2}, [](Rank& rank) {
    const Shape shape{5, 3};
    const SpecPtr partial = make_spec(rank.mesh, {"P", "P"}, shape),
                  whole = make_spec(rank.mesh, {"R", "R"}, shape);
    for (const auto& texts : std::vector<std::vector<const char*>>{
             {"R", "R"}, {"S(0)", "S(1)"}, {"S(0)", "S(0)"}, {"R", "S(1)"}}) {
      const SpecPtr from = make_spec(rank.mesh, texts, shape);
      rank.mesh.reset_counters();
      const Tensor x = make_local(rank.context, *from, rank.mesh.coordinates());
      const Tensor y = redistribute_local(x, {from, partial}, rank.on_mesh());
      EXPECT_EQ(rank.all_calls(), 0u);
      expect_local(redistribute_local(y, {partial, whole}, rank.on_mesh()), *whole,
                   rank.mesh.coordinates());
    }
    const SpecPtr avg = make_spec(rank.mesh, {"P(avg)", "P(avg)"}, shape);
    const Tensor x = make_local(rank.context, *partial, rank.mesh.coordinates());
    const Tensor y = redistribute_local(x, {partial, avg}, rank.on_mesh());
    expect_local(redistribute_local(y, {avg, whole}, rank.on_mesh()), *whole,
                 rank.mesh.coordinates(), test::partial_factor(*partial));
  });
}

TEST(Redistribute, IntoPartialFromAShardOfAllInAnOrderOfItsOwn) {
  on_mesh({2}, [](Rank& rank) {
    const auto turned = planner::DimOrder::listed(4, {{{2, 3}, {0, 1}, {3, 4}, {1, 2}}, {}});
    const SpecPtr from = make_spec(rank.mesh, {"S(0)"}, {4, 2}, {}, {turned});
    const SpecPtr partial = make_spec(rank.mesh, {"P"}, {4, 2}),
                  whole = make_spec(rank.mesh, {"R"}, {4, 2});
    const Tensor x = make_local(rank.context, *from, rank.mesh.coordinates());
    const Tensor y = redistribute_local(x, {from, partial}, rank.on_mesh());
    expect_local(redistribute_local(y, {partial, whole}, rank.on_mesh()), *whole,
                 rank.mesh.coordinates());
  });
}

TEST(Redistribute, DtypesOfForwardAndBackward) {
  on_mesh({4}, [](Rank& rank) {
    const Shape shape{7, 3};
    const SpecPtr sharded = make_spec(rank.mesh, {"S(0)"}, shape),
                  whole = make_spec(rank.mesh, {"R"}, shape);
    using Optional = std::optional<DType>;
    const Optional choices[] = {std::nullopt, DType::kBFloat16, DType::kFloat32};
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const Optional& forward : choices) {
        for (const Optional& backward : choices) {
          Tensor x = make_local(rank.context, *sharded, rank.mesh.coordinates(), dtype);
          x.set_requires_grad(true);
          rank.mesh.reset_counters();
          const Tensor y = redistribute_local(x, {sharded, whole, whole, sharded}, rank.on_mesh(),
                                              {forward, backward});
          EXPECT_EQ(y.dtype(), forward.value_or(dtype));
          expect_local(y, *whole, rank.mesh.coordinates());
          EXPECT_EQ(rank.calls("all_gather"), 1u);
          const Tensor outputs[] = {y};
          const Tensor grads[] = {
              make_local(rank.context, *whole, rank.mesh.coordinates(), y.dtype())};
          autograd::backward(outputs, grads);
          expect_local(x.grad(), *sharded, rank.mesh.coordinates());
          EXPECT_EQ(rank.all_calls(), 1u);
        }
      }
    }
  });
}

/// Draws layouts without Partial in the target; sources may be Partial of one kind.
SpecPtr draw_spec(std::mt19937& random, const DeviceMesh& mesh, const Shape& shape, bool partial) {
  const int ndim = mesh.layout()->ndim();
  planner::Placements placements;
  std::map<int, std::vector<int>> sharding_dims;
  const char* kinds[] = {"P(sum)", "P(avg)", "P(max)", "P(min)"};
  const planner::Placement kind = planner::parse_placement(kinds[random() % 4]);
  for (int d = 0; d < ndim; ++d) {
    const auto choice = random() % (partial ? 4 : 3);
    if (choice == 0) {
      placements.push_back(planner::Placement::replicate());
    } else if (choice == 3) {
      placements.push_back(kind);
    } else {
      const int dim = static_cast<int>(random() % static_cast<unsigned>(shape.size()));
      placements.push_back(planner::Placement::shard(dim));
      sharding_dims[dim].push_back(d);
    }
  }
  planner::ShardOrder order;
  for (auto& [dim, dims] : sharding_dims) {
    std::shuffle(dims.begin(), dims.end(), random);
    order.push_back({dim, dims});
  }
  return std::make_shared<const planner::DTensorSpec>(mesh.layout(), placements, shape, order);
}

TEST(Redistribute, RandomLayoutsUnevenNestedReordered) {
  const std::vector<std::vector<int>> meshes = {{2}, {3}, {2, 2}, {3, 2}, {2, 1, 3}, {2, 2, 2}};
  for (std::size_t m = 0; m < meshes.size(); ++m) {
    for (const bool greedy : {true, false}) {
      planner::RedistributeOptions options;
      if (greedy) options.planner = planner::PlannerKind::kGreedy;
      on_mesh(
          meshes[m],
          [&](Rank& rank) {
            std::mt19937 random(static_cast<unsigned>(17 + m));
            const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                    DType::kInt64, DType::kInt32};
            for (int draw = 0; draw < 60; ++draw) {
              Shape shape;
              const int dims = 1 + static_cast<int>(random() % 3);
              for (int d = 0; d < dims; ++d)
                shape.push_back(static_cast<std::int64_t>(random() % 8));
              const SpecPtr from = draw_spec(random, rank.mesh, shape, true);
              const SpecPtr to = draw_spec(random, rank.mesh, shape, false);
              DType dtype = dtypes[random() % 5];
              // Sums of small whole numbers stay exact in float32 and above only.
              if (from->has_partial()) dtype = DType::kFloat64;
              SCOPED_TRACE(fmt::format("{} -> {} of {}", to_string(*from), to_string(*to),
                                       to_string(shape)));
              check_round(rank, from, to, dtype);
              if (::testing::Test::HasFatalFailure()) return;
            }
          },
          options);
    }
  }
}

TEST(Redistribute, DimOrders) {
  on_mesh({2, 3}, [](Rank& rank) {
    const Shape shape{24, 13};
    const auto blocked = planner::DimOrder::blocked(24, 3, 3, 2);
    const auto zigzag =
        planner::DimOrder::listed(13, {{{0, 4}, {11, 13}}, {{4, 6}, {9, 11}}, {{6, 9}}});
    const std::vector<SpecPtr> specs = {
        make_spec(rank.mesh, {"R", "S(0)"}, shape, {}, {nullptr, blocked}),
        make_spec(rank.mesh, {"R", "S(1)"}, shape, {}, {nullptr, zigzag}),
        make_spec(rank.mesh, {"S(0)", "S(1)"}, shape, {}, {nullptr, zigzag}),
        make_spec(rank.mesh, {"S(0)", "S(0)"}, shape, {{0, {1, 0}}}, {nullptr, blocked}),
        make_spec(rank.mesh, {"R", "R"}, shape),
        make_spec(rank.mesh, {"S(1)", "S(0)"}, shape)};
    for (const SpecPtr& from : specs)
      for (const SpecPtr& to : specs) {
        SCOPED_TRACE(to_string(*from) + " -> " + to_string(*to));
        check_round(rank, from, to, DType::kFloat32);
      }
  });
}

TEST(Redistribute, OrdersByRow) {
  on_mesh({2, 3}, [](Rank& rank) {
    std::mt19937 random(41);
    const Shape shape{5, 13};
    const auto by_row = [&](int parts) {
      return planner::DimOrder::listed_by_row(13, 0, test::random_rows(random, 13, parts, 5));
    };
    const auto a = by_row(3), b = by_row(3), pair = by_row(2);
    const auto columns =
        planner::DimOrder::listed_by_row(5, 1, test::random_rows(random, 5, 2, 13));
    const auto rows = planner::DimOrder::listed(5, test::random_rows(random, 5, 2, 1).front());
    const std::vector<SpecPtr> specs = {
        make_spec(rank.mesh, {"R", "S(1)"}, shape, {}, {nullptr, a}),
        make_spec(rank.mesh, {"R", "S(1)"}, shape, {}, {nullptr, b}),
        make_spec(rank.mesh, {"S(0)", "S(1)"}, shape, {}, {nullptr, a}),
        make_spec(rank.mesh, {"S(0)", "S(1)"}, shape, {}, {rows, a}),
        make_spec(rank.mesh, {"S(1)", "S(1)"}, shape, {}, {pair, nullptr}),
        make_spec(rank.mesh, {"S(1)", "S(1)"}, shape, {{1, {1, 0}}}, {nullptr, b}),
        make_spec(rank.mesh, {"S(0)", "R"}, shape, {}, {columns, nullptr}),
        make_spec(rank.mesh, {"R", "R"}, shape),
        make_spec(rank.mesh, {"P", "P"}, shape),
        make_spec(rank.mesh, {"P", "S(1)"}, shape, {}, {nullptr, b}),
        make_spec(rank.mesh, {"S(1)", "S(0)"}, shape)};
    for (const SpecPtr& from : specs)
      for (const SpecPtr& to : specs) {
        if (to->has_partial()) continue;
        SCOPED_TRACE(to_string(*from) + " -> " + to_string(*to));
        check_round(rank, from, to, DType::kFloat64);
        if (::testing::Test::HasFatalFailure()) return;
      }
  });
}

TEST(Redistribute, OrdersByRowAcrossMeshes) {
  testing::run_thread_ranks(5, [](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    testing::TestContext context;
    planner::PlanCache plans;
    DeviceMesh left(*world, mesh_of({2, 2}), {0, 1, 2, 3}), right(*world, mesh_of({3}), {4, 1, 2});
    std::mt19937 random(42);
    const Shape shape{4, 7};
    const auto lists = [&](int parts) {
      return planner::DimOrder::listed_by_row(7, 0, test::random_rows(random, 7, parts, 4));
    };
    const SpecPtr from = make_spec(left, {"S(0)", "S(1)"}, shape, {}, {nullptr, lists(2)});
    const SpecPtr to = make_spec(right, {"S(1)"}, shape, {}, {lists(3)});
    const auto place = [&](DeviceMesh& mesh, const SpecPtr& spec) {
      return mesh.member() ? make_local(context, *spec, mesh.coordinates())
                           : empty(context, {0}, DType::kFloat32);
    };
    Tensor x = place(left, from);
    x.set_requires_grad(true);
    const Tensor y = redistribute_local(x, {from, to, without_partial(to), without_partial(from)},
                                        {left, right, plans});
    if (right.member()) expect_local(y, *to, right.coordinates());
    const Tensor outputs[] = {y}, grads[] = {place(right, to)};
    autograd::backward(outputs, grads);
    if (left.member()) expect_local(x.grad(), *from, left.coordinates());
  });
}

TEST(Redistribute, MergedStepsSumInRankOrder) {
  on_mesh({2, 2}, [](Rank& rank) {
    const Shape shape{4, 3};
    const SpecPtr partial = make_spec(rank.mesh, {"P", "P"}, shape),
                  whole = make_spec(rank.mesh, {"R", "R"}, shape);
    // Rank order matters to these: ((1e8 + 1) - 1e8) + 1 = 1 in float32.
    const double shares[] = {1e8, 1, -1e8, 1};
    const Tensor x = full(rank.context, shape, shares[rank.mesh.rank()], DType::kFloat32);
    for (const double v : redistribute_local(x, {partial, whole}, rank.on_mesh()).to_vector())
      EXPECT_EQ(v, 1.0);
    EXPECT_EQ(rank.calls("all_reduce"), 1u);
    // The input was not written to.
    EXPECT_EQ(x.to_vector()[0], shares[rank.mesh.rank()]);
  });
}

TEST(Redistribute, StridedLocalTensor) {
  on_mesh({2}, [](Rank& rank) {
    const Shape shape{5, 4};
    const SpecPtr sharded = make_spec(rank.mesh, {"S(0)"}, shape);
    const Tensor dense = make_local(rank.context, *sharded, rank.mesh.coordinates());
    const Tensor strided = ops::transpose(ops::contiguous(ops::transpose(dense, 0, 1)), 0, 1);
    for (const char* to : {"R", "S(1)", "P"}) {
      const SpecPtr target = make_spec(rank.mesh, {to}, shape);
      const Tensor y = redistribute_local(strided, {sharded, target}, rank.on_mesh());
      const SpecPtr whole = make_spec(rank.mesh, {"R"}, shape);
      expect_local(redistribute_local(y, {target, whole}, rank.on_mesh()), *whole,
                   rank.mesh.coordinates());
    }
  });
}

TEST(Redistribute, NothingToDoGivesTheSameTensor) {
  on_mesh({2, 1}, [](Rank& rank) {
    const Shape shape{5, 4};
    const SpecPtr a = make_spec(rank.mesh, {"S(0)", "S(1)"}, shape),
                  b = make_spec(rank.mesh, {"S(0)", "R"}, shape),
                  c = make_spec(rank.mesh, {"S(0)", "P"}, shape);
    const Tensor x = make_local(rank.context, *a, rank.mesh.coordinates());
    for (const SpecPtr& to : {a, make_spec(rank.mesh, {"S(0)", "S(1)"}, shape)})
      EXPECT_EQ(redistribute_local(x, {a, to}, rank.on_mesh()).impl(), x.impl());
    expect_local(redistribute_local(x, {a, b}, rank.on_mesh()), *b, rank.mesh.coordinates());
    expect_local(redistribute_local(x, {c, b}, rank.on_mesh()), *b, rank.mesh.coordinates());
    EXPECT_EQ(rank.all_calls(), 0u);
  });
}

TEST(Redistribute, InFlight) {
  on_mesh({2, 2}, [](Rank& rank) {
    const Shape shape{5, 7};
    const SpecPtr from = make_spec(rank.mesh, {"S(0)", "S(1)"}, shape),
                  to = make_spec(rank.mesh, {"R", "R"}, shape);
    Tensor x = make_local(rank.context, *from, rank.mesh.coordinates());
    x.set_requires_grad(true);
    RedistributeWork one(x, {from, to, to, from}, rank.on_mesh());
    RedistributeWork two(x, {from, from, from, from}, rank.on_mesh());
    expect_local(two.wait(), *from, rank.mesh.coordinates());
    while (!one.poll()) {
    }
    const Tensor y = one.wait();
    expect_local(y, *to, rank.mesh.coordinates());
    EXPECT_THROW(one.wait(), FailedPrecondition);
    const Tensor outputs[] = {y};
    const Tensor grads[] = {make_local(rank.context, *to, rank.mesh.coordinates())};
    autograd::backward(outputs, grads);
    expect_local(x.grad(), *from, rank.mesh.coordinates());
  });
}

TEST(Redistribute, AcrossMeshes) {
  testing::run_thread_ranks(5, [](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    testing::TestContext context;
    planner::PlanCache plans;
    DeviceMesh left(*world, mesh_of({2, 2}), {0, 1, 2, 3}), right(*world, mesh_of({2}), {4, 1}),
        other(*world, mesh_of({3}), {4, 3, 2});
    const Shape shape{7, 5};
    const auto place = [&](DeviceMesh& mesh, const SpecPtr& spec) {
      return mesh.member() ? make_local(context, *spec, mesh.coordinates())
                           : empty(context, {0}, DType::kFloat32);
    };
    const auto check = [&](DeviceMesh& a, const std::vector<const char*>& from_text, DeviceMesh& b,
                           const std::vector<const char*>& to_text) {
      const SpecPtr from = make_spec(a, from_text, shape), to = make_spec(b, to_text, shape);
      Tensor x = place(a, from);
      x.set_requires_grad(true);
      const Tensor y = redistribute_local(x, {from, to, without_partial(to), without_partial(from)},
                                          {a, b, plans});
      if (b.member())
        expect_local(y, *to, b.coordinates(), test::partial_factor(*from));
      else
        EXPECT_EQ(y.numel(), 0);
      const Tensor outputs[] = {y}, grads[] = {place(b, to)};
      autograd::backward(outputs, grads);
      if (a.member()) expect_local(x.grad(), *without_partial(from), a.coordinates());
    };
    check(left, {"S(0)", "S(1)"}, right, {"S(1)"});
    check(left, {"S(0)", "R"}, right, {"R"});
    check(left, {"P", "S(1)"}, other, {"S(0)"});
    check(right, {"R"}, left, {"S(1)", "S(1)"});
    check(right, {"S(0)"}, other, {"R"});
  });
}

TEST(Redistribute, RefusedOnAllRanksAndUsableAfterwards) {
  on_mesh({4}, [](Rank& rank) {
    const Shape shape{6, 3};
    const SpecPtr sharded = make_spec(rank.mesh, {"S(0)"}, shape),
                  whole = make_spec(rank.mesh, {"R"}, shape);
    const Tensor x = make_local(rank.context, *sharded, rank.mesh.coordinates());
    const auto error = [&](const SpecPtr& from, const SpecPtr& to) -> std::string {
      try {
        redistribute_local(x, {from, to}, rank.on_mesh());
      } catch (const InvalidArgument& e) {
        return e.what();
      }
      return {};
    };
    const auto spec = [&](const char* text) { return make_spec(rank.mesh, {text}, shape); };
    EXPECT_NE(error(sharded, spec("P(max)")).find("artial"), std::string::npos);
    EXPECT_NE(error(spec("P(max)"), spec("P(min)")).find("artial"), std::string::npos);
    EXPECT_NE(error(spec("P"), spec("P(max)")).find("artial"), std::string::npos);
    EXPECT_NE(error(sharded, make_spec(rank.mesh, {"R"}, {6, 4})).find("[6, 4]"),
              std::string::npos);
    // A local tensor that is not what the layout says.
    const SpecPtr wide = make_spec(rank.mesh, {"S(0)"}, {16, 3}),
                  wide_whole = make_spec(rank.mesh, {"R"}, {16, 3});
    EXPECT_NE(error(wide, wide_whole).find("local tensor"), std::string::npos);
    EXPECT_EQ(rank.all_calls(), 0u);
    expect_local(redistribute_local(x, {sharded, whole}, rank.on_mesh()), *whole,
                 rank.mesh.coordinates());
  });
}

}  // namespace
}  // namespace meshloom::dtensor
