// SPDX-License-Identifier: Apache-2.0
// Every style and option on a mesh of threads: values against one rank, layouts, collectives.
#include <gtest/gtest.h>

#include <mutex>

#include "daemon/nn/modules/embedding.h"
#include "daemon/nn/modules/mlp.h"
#include "daemon/nn/modules/norm.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/parallel/tensor_parallel/mesh_rank.h"

namespace meshloom::parallel {
namespace {

using planner::ArgumentLayouts;
using planner::ParallelStyle;
using planner::Placement;
using planner::Placements;
using planner::StyleKind;
using planner::StylePlan;
using testing::MeshRank;
using testing::run_mesh;
using testing::tp_mesh;
using Calls = std::map<std::string, int>;

ArgumentLayouts layouts(std::initializer_list<Placement> placements) {
  ArgumentLayouts result;
  for (const Placement& p : placements) result.push_back(Placements{p});
  return result;
}
const Placement kWhole = Placement::replicate();

Tensor values(ExecutionContext& context, const Shape& shape, std::uint64_t seed) {
  const Tensor x = empty(context, shape, DType::kFloat32);
  nn::initialize_tensor(x, "x", {.kind = nn::Init::Kind::kNormal, .std = 1.0f}, seed);
  return x;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-6) << i;
}

/// What a linear layer gives on one rank, and its gradients for a gradient of ones.
struct LinearReference {
  std::vector<double> y, dx, dweight;
};

LinearReference linear_reference(const Shape& x_shape, std::int64_t out) {
  testing::TestContext context;
  nn::Linear linear(context, x_shape.back(), out, DType::kFloat32, {});
  nn::initialize_parameters(linear, 4);
  Tensor x = values(context, x_shape, 8);
  x.set_requires_grad(true);
  const Tensor y = linear(x);
  const Tensor outputs[] = {y};
  const Tensor grads[] = {full(context, y.shape(), 1.0, DType::kFloat32)};
  autograd::backward(outputs, grads);
  return {y.to_vector(), x.grad().to_vector(), linear.weight().grad().to_vector()};
}

/// Features 7 -> 5 over 3 ranks: nothing divides.
TEST(Styles, LinearByColumnsAndRowsOnUnevenFeatures) {
  const Shape x_shape{2, 4, 7};
  const LinearReference expected = linear_reference(x_shape, 5);
  for (const StyleKind kind : {StyleKind::kColwise, StyleKind::kRowwise}) {
    const bool columns = kind == StyleKind::kColwise;
    run_mesh(tp_mesh(3), [&](MeshRank& rank) {
      nn::Linear linear(rank.context(), 7, 5, DType::kFloat32, {});
      nn::initialize_parameters(linear, 4);
      const ParallelStyle style{.kind = kind, .input_layouts = layouts({kWhole})};
      parallelize_module(linear, rank.style_mesh(), {{"", {style}}});
      Tensor x = values(rank.context(), x_shape, 8);
      x.set_requires_grad(true);
      rank.mesh().reset_counters();
      const Tensor y = linear(x);
      EXPECT_EQ(rank.calls(), columns ? Calls{} : (Calls{{"all_reduce", 1}}));
      EXPECT_FALSE(y.has_layout());
      const auto y_spec = rank.spec({2, 4, 5}, {columns ? Placement::shard(-1) : kWhole});
      expect_near(rank.whole(y.detach(), y_spec), expected.y);

      const Tensor outputs[] = {y};
      const Tensor grads[] = {full(rank.context(), y.shape(), 1.0, DType::kFloat32)};
      rank.mesh().reset_counters();
      autograd::backward(outputs, grads);
      EXPECT_EQ(rank.calls(), columns ? (Calls{{"all_reduce", 1}}) : (Calls{{"all_gather", 1}}));
      expect_near(x.grad().to_vector(), expected.dx);
      const TensorLayout& weight = *linear.weight().layout();
      EXPECT_EQ(weight.spec->placement(0), Placement::shard(columns ? 0 : 1));
      expect_near(rank.whole(weight.local.grad(), weight.spec), expected.dweight);
    });
  }
}

/// The sequence is sharded over another dim of the mesh, of which the styles know nothing.
TEST(Styles, ActAlongTheirOwnDimAndLeaveTheOthersAlone) {
  const Shape x_shape{2, 5, 7};
  const LinearReference expected = linear_reference(x_shape, 5);
  for (const StyleKind kind : {StyleKind::kColwise, StyleKind::kRowwise}) {
    run_mesh(planner::MeshLayout({{"cp", 2}, {"tp", 2}}), [&](MeshRank& rank) {
      const StyleMesh along(rank.engine(), "tp");
      nn::Linear linear(rank.context(), 7, 5, DType::kFloat32, {});
      nn::initialize_parameters(linear, 4);
      const ParallelStyle style{.kind = kind,
                                .input_layouts = layouts({kWhole}),
                                .output_layouts = layouts({kWhole}),
                                .use_local_output = false};
      parallelize_module(linear, along, {{"", {style}}});
      const TensorLayout& weight = *linear.weight().layout();
      const int dim = kind == StyleKind::kColwise ? 0 : 1;
      EXPECT_EQ(weight.spec->placements(), (Placements{kWhole, Placement::shard(dim)}));

      const auto x_spec = rank.spec(x_shape, {Placement::shard(1), kWhole});
      const Tensor local = dtensor::redistribute_local(values(rank.context(), x_shape, 8),
                                                       {rank.spec(x_shape, Placements(2)), x_spec},
                                                       rank.engine().context());
      const Tensor y = linear(with_layout(local, x_spec, rank.engine()));
      EXPECT_EQ(y.layout()->spec->placements(), (Placements{Placement::shard(1), kWhole}));
      expect_near(rank.whole(y.layout()->local.detach(), y.layout()->spec), expected.y);
    });
  }
}

TEST(Styles, ADimThatTheMeshHasNotIsRefused) {
  run_mesh(tp_mesh(2),
           [&](MeshRank& rank) { EXPECT_THROW(StyleMesh(rank.engine(), "cp"), InvalidArgument); });
}

TEST(Styles, GathersASequenceOnceAndScattersItsGradient) {
  run_mesh(tp_mesh(2), [](MeshRank& rank) {
    nn::Mlp mlp(rank.context(), {6, 10, 6}, nn::ActivationKind::kSilu, DType::kFloat32);
    nn::initialize_parameters(mlp, 4);
    const ArgumentLayouts rows = layouts({Placement::shard(0)});
    const StylePlan plan = {
        {"net1", {{.kind = StyleKind::kColwise, .input_layouts = rows}}},
        {"net2", {{.kind = StyleKind::kRowwise, .output_layouts = rows}}},
    };
    parallelize_module(mlp, rank.style_mesh(), plan);
    Tensor x = values(rank.context(), {4, 6}, 8 + static_cast<std::uint64_t>(rank.rank()));
    x.set_requires_grad(true);
    rank.mesh().reset_counters();
    const Tensor y = mlp(x);
    EXPECT_EQ(rank.calls(), (Calls{{"all_gather", 1}, {"reduce_scatter", 1}}));
    EXPECT_EQ(y.shape(), (Shape{4, 6}));
    const Tensor outputs[] = {y};
    const Tensor grads[] = {full(rank.context(), y.shape(), 1.0, DType::kFloat32)};
    rank.mesh().reset_counters();
    autograd::backward(outputs, grads);
    EXPECT_EQ(rank.calls(), (Calls{{"all_gather", 1}, {"reduce_scatter", 1}}));
    EXPECT_EQ(x.grad().shape(), (Shape{4, 6}));
  });
}

TEST(Styles, SequenceParallelNormHasNoCollectivesAndSummandsOfItsGradient) {
  run_mesh(tp_mesh(4), [](MeshRank& rank) {
    nn::LayerNorm norm(rank.context(), 12, DType::kFloat32, 1e-5);
    nn::initialize_parameters(norm, 4);
    parallelize_module(norm, rank.style_mesh(), {{"", {{.kind = StyleKind::kSequence}}}});
    const Tensor x = values(rank.context(), {3, 2, 12}, 1);
    rank.mesh().reset_counters();
    const Tensor y = norm(x);
    ASSERT_TRUE(y.has_layout());
    EXPECT_EQ(y.layout()->spec->placement(0), Placement::shard(1));
    EXPECT_EQ(y.shape(), (Shape{3, 8, 12}));
    const Tensor outputs[] = {y.layout()->local};
    const Tensor grads[] = {full(rank.context(), {3, 2, 12}, 1.0, DType::kFloat32)};
    autograd::backward(outputs, grads);
    EXPECT_EQ(rank.calls(), Calls{});
    for (const nn::NamedParameter& p : norm.named_parameters())
      EXPECT_TRUE(gradient_spec(p.parameter->value)->has_partial()) << p.name;
  });
}

TEST(Styles, PrepareStylesTakePositionsNamesAndNone) {
  run_mesh(tp_mesh(2), [](MeshRank& rank) {
    nn::LayerNorm norm(rank.context(), 6, DType::kFloat32, 1e-5);
    nn::initialize_parameters(norm, 4);
    replicate_parameters(norm, rank.style_mesh());
    ParallelStyle style{.kind = StyleKind::kPrepareInputOutput};
    style.input_layouts = layouts({Placement::shard(1)});
    style.desired_input_layouts = layouts({kWhole});
    style.input_kwarg_layouts["residual"] = Placements{kWhole};
    style.desired_input_kwarg_layouts["residual"] = Placements{kWhole};
    // The sum keeps the layout it has.
    style.output_layouts = ArgumentLayouts{Placements{kWhole}, std::nullopt};
    style.desired_output_layouts = ArgumentLayouts{Placements{Placement::shard(1)}, std::nullopt};
    parallelize_module(norm, rank.style_mesh(), {{"", {style}}});
    const Tensor x = values(rank.context(), {2, 3, 6}, 1), r = values(rank.context(), {2, 6, 6}, 2);
    const ops::NormedSum out = norm(x, r);
    EXPECT_FALSE(out.normed.has_layout());
    EXPECT_EQ(out.normed.shape(), (Shape{2, 3, 6}));
    ASSERT_TRUE(out.sum.has_layout());
    EXPECT_TRUE(out.sum.layout()->spec->replicated());
  });
}

TEST(Styles, SeveralStylesOfAModuleActInOrder) {
  run_mesh(tp_mesh(2), [](MeshRank& rank) {
    nn::Linear linear(rank.context(), 6, 8, DType::kFloat32, {});
    nn::initialize_parameters(linear, 4);
    const ParallelStyle gather{.kind = StyleKind::kPrepareInput,
                               .input_layouts = layouts({Placement::shard(0)}),
                               .desired_input_layouts = layouts({kWhole})};
    const ParallelStyle columns{.kind = StyleKind::kColwise};
    parallelize_module(linear, rank.style_mesh(), {{"", {gather, columns}}});
    rank.mesh().reset_counters();
    const Tensor y = linear(values(rank.context(), {3, 6}, 1));
    EXPECT_EQ(y.shape(), (Shape{6, 4}));
    EXPECT_EQ(rank.calls(), (Calls{{"all_gather", 1}}));
  });
}

TEST(Styles, ShardOverEveryDimOfAMesh) {
  const Shape x_shape{3, 7};
  const LinearReference expected = linear_reference(x_shape, 9);
  run_mesh(planner::MeshLayout({{"a", 2}, {"b", 2}}), [&](MeshRank& rank) {
    nn::Linear linear(rank.context(), 7, 9, DType::kFloat32, {});
    nn::initialize_parameters(linear, 4);
    ParallelStyle style{.kind = StyleKind::kColwise};
    style.output_layouts = ArgumentLayouts{Placements{Placement::shard(-1), kWhole}};
    style.use_local_output = false;
    parallelize_module(linear, rank.style_mesh(), {{"", {style}}});
    EXPECT_EQ(linear.weight().layout()->spec->sharding_dims(0), (std::vector<int>{0, 1}));
    const Tensor y = linear(values(rank.context(), x_shape, 8));
    EXPECT_EQ(y.layout()->spec->placement(1), kWhole);
    expect_near(rank.whole(y.layout()->local.detach(), y.layout()->spec), expected.y);
  });
}

TEST(Styles, TheValuesOfTheSourceRankWin) {
  for (const bool shared : {true, false})
    run_mesh(tp_mesh(2), [&](MeshRank& rank) {
      nn::Linear linear(rank.context(), 4, 4, DType::kFloat32, {});
      nn::initialize_parameters(linear, 10 + static_cast<std::uint64_t>(rank.rank()));
      testing::TestContext context;
      nn::Linear source(context, 4, 4, DType::kFloat32, {});
      nn::initialize_parameters(source, shared ? 11 : 10 + static_cast<std::uint64_t>(rank.rank()));
      ParallelizeOptions options;
      options.src_data_rank = shared ? std::optional<int>(1) : std::nullopt;
      rank.mesh().reset_counters();
      parallelize_module(linear, rank.style_mesh(), {{"", {{.kind = StyleKind::kColwise}}}},
                         options);
      EXPECT_EQ(rank.calls().empty(), !shared);
      const std::vector<double> mine = linear.weight().layout()->local.to_vector();
      const std::vector<double> all = source.weight().to_vector();
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_EQ(mine[i], all[i + static_cast<std::size_t>(rank.rank()) * mine.size()]);
    });
}

TEST(Styles, FrozenParametersStayFrozen) {
  run_mesh(tp_mesh(2), [](MeshRank& rank) {
    nn::Linear linear(rank.context(), 4, 4, DType::kFloat32, {});
    for (const nn::NamedParameter& p : linear.named_parameters())
      if (p.name == "weight") p.parameter->value.set_requires_grad(false);
    parallelize_module(linear, rank.style_mesh(), {{"", {{.kind = StyleKind::kColwise}}}});
    EXPECT_FALSE(linear.weight().requires_grad());
    EXPECT_TRUE(linear.bias().requires_grad());
  });
}

/// Every rank must throw, with the same text; it holds `word`.
void expect_refusal(const StylePlan& plan, const std::string& word) {
  std::mutex mutex;
  std::vector<std::string> texts;
  run_mesh(tp_mesh(2), [&](MeshRank& rank) {
    nn::Mlp mlp(rank.context(), {6, 8, 6}, nn::ActivationKind::kRelu, DType::kFloat32);
    nn::initialize_parameters(mlp, 1);
    try {
      parallelize_module(mlp, rank.style_mesh(), plan);
      ADD_FAILURE() << "not refused: " << word;
    } catch (const InvalidArgument& error) {
      const std::lock_guard lock(mutex);
      texts.emplace_back(error.what());
    }
    for (const nn::NamedParameter& p : mlp.named_parameters())
      EXPECT_FALSE(p.parameter->value.has_layout()) << p.name;
  });
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0].find(word), std::string::npos) << texts[0];
}

TEST(Styles, RefuseWhatDoesNotFitBeforeAnythingChanges) {
  const ParallelStyle columns{.kind = StyleKind::kColwise}, rows{.kind = StyleKind::kRowwise};
  expect_refusal({{"net1", {columns}}, {"act", {columns}}}, "ColwiseParallel of act");
  expect_refusal({{"net1", {columns, rows}}}, "RowwiseParallel of net1");
  expect_refusal({{"", {{.kind = StyleKind::kSequence}}}}, "SequenceParallel of the module itself");
  expect_refusal({{"net1",
                   {{.kind = StyleKind::kPrepareInput,
                     .input_layouts = layouts({kWhole, kWhole}),
                     .desired_input_layouts = layouts({kWhole})}}}},
                 "layouts");
  expect_refusal({{"net1",
                   {{.kind = StyleKind::kPrepareInput,
                     .input_layouts = layouts({kWhole, kWhole}),
                     .desired_input_layouts = layouts({kWhole, kWhole})}}}},
                 "2 layouts for a module with 1 inputs");
  ParallelStyle named{.kind = StyleKind::kPrepareInput};
  named.input_kwarg_layouts["mask"] = named.desired_input_kwarg_layouts["mask"] =
      Placements{kWhole};
  expect_refusal({{"net1", {named}}}, "\"mask\"");
  expect_refusal({{"net1",
                   {{.kind = StyleKind::kColwise,
                     .input_layouts = ArgumentLayouts{Placements{kWhole, kWhole}}}}}},
                 "2 placements for a mesh of 1 dims");
  expect_refusal({{"net[12]", {columns}}, {"net?1", {rows}}, {"?et1", {rows}}}, "equally well");
}

TEST(Styles, WarnOfPatternsThatMatchNothing) {
  run_mesh(tp_mesh(2), [](MeshRank& rank) {
    nn::Mlp mlp(rank.context(), {6, 8, 6}, nn::ActivationKind::kRelu, DType::kFloat32);
    nn::initialize_parameters(mlp, 1);
    const ParallelStyle columns{.kind = StyleKind::kColwise};
    const ParallelizeReport report =
        parallelize_module(mlp, rank.style_mesh(), {{"net1", {columns}}, {"nett2", {columns}}});
    ASSERT_EQ(report.warnings.size(), 1U);
    EXPECT_NE(report.warnings[0].find("net2"), std::string::npos) << report.warnings[0];
    EXPECT_EQ(report.applied, std::vector<std::string>{"net1: ColwiseParallel"});
    EXPECT_FALSE(parallelize_module(mlp, rank.style_mesh(), {}).warnings.empty());
  });
}

TEST(Styles, AWrongLocalShapeIsNamed) {
  run_mesh(tp_mesh(2), [](MeshRank& rank) {
    nn::Linear linear(rank.context(), 7, 4, DType::kFloat32, {});
    nn::initialize_parameters(linear, 1);
    parallelize_module(linear, rank.style_mesh(), {{"", {{.kind = StyleKind::kRowwise}}}});
    try {
      linear(values(rank.context(), {2, 7}, 1));  // the whole where a part is expected
      FAIL() << "not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("RowwiseParallel"), std::string::npos)
          << error.what();
    }
  });
}

TEST(Styles, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    planner::style_from_name("DiagonalParallel");
    FAIL();
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("DiagonalParallel"), std::string::npos);
    EXPECT_NE(text.find("ColwiseParallel"), std::string::npos);
  }
}

}  // namespace
}  // namespace meshloom::parallel
