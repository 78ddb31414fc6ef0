// SPDX-License-Identifier: Apache-2.0
// The scaled products of float8 operands against their formula in double.
#include <gmock/gmock.h>

#include "daemon/comm/symm_mem/fused/fused_matmul.h"
#include "kernels/base/error.h"
#include "kernels/base/float8.h"
#include "tests/unit/comm/symm_mem/fused/fused_fixture.h"

namespace meshloom::comm {
namespace {

using testing::expect_equal;
using testing::expect_near;
using testing::FusedRank;
using ::testing::HasSubstr;
using testing::numbers;
using testing::part_of;
using testing::product;
using testing::run_fused;

struct Scaled {
  Tensor a, b, a_scale, b_scale, bias, result_scale;
};

Scaled make_case(ExecutionContext& context, const Shape& shape, std::int64_t columns, bool by_row) {
  Scaled c;
  Shape rows = shape;
  rows[shape.size() - 1] = 1;
  c.a = numbers(context, shape, DType::kFloat8E4M3, 1);
  c.b = numbers(context, {shape.back(), columns}, DType::kFloat8E5M2, 2);
  c.a_scale = numbers(context, by_row ? rows : Shape{1}, DType::kFloat32, 3);
  c.b_scale = numbers(context, by_row ? Shape{1, columns} : Shape{1}, DType::kFloat32, 4);
  c.bias = numbers(context, {columns}, DType::kFloat32, 5);
  c.result_scale = full(context, {1}, 0.5, DType::kFloat32);
  return c;
}

/// The formula, with the product of A and B divided by `ranks`.
Tensor expected(const Scaled& c, double ranks) {
  const auto columns = static_cast<std::size_t>(c.b.size(1));
  std::vector<double> y = product(c.a, c.b);
  const std::vector<double> rows = c.a_scale.to_vector(), of_column = c.b_scale.to_vector(),
                            bias = c.bias.to_vector();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i / columns, column = i % columns;
    y[i] *=
        rows[rows.size() == 1 ? 0 : row] * of_column[of_column.size() == 1 ? 0 : column] / ranks;
    y[i] = (y[i] + bias[column]) * c.result_scale.item();
  }
  Shape shape = c.a.shape();
  shape[shape.size() - 1] = c.b.size(1);
  return from_values(c.a.context(), shape, y, DType::kFloat64);
}

struct Out {
  DType dtype;
  double absolute, relative;
};

const Out kOuts[] = {{DType::kFloat32, 2e-5, 1e-5},
                     {DType::kBFloat16, 2e-5, 0.0040},
                     {DType::kFloat16, 2e-5, 0.00049},
                     {DType::kFloat8E4M3, 0.0011, 0.0626},
                     {DType::kFloat8E5M2, 2e-5, 0.1251}};

class ScaledMatmul : public ::testing::TestWithParam<int> {};

TEST_P(ScaledMatmul, AllGatherIsTheFormulaRoundedOnce) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (const bool by_row : {false, true}) {
      for (int dim = 0; dim < 3; ++dim) {
        const Scaled c = make_case(rank.context, {4, 11, 13}, 7, by_row);
        const Tensor y = expected(c, 1.0);
        const bool local_scales = by_row && dim != 2;
        const Tensor a_scale = local_scales ? part_of(c.a_scale, dim, rank) : c.a_scale;
        for (const Out& out : kOuts) {
          for (const int splits : {0, 3}) {
            const std::vector<Tensor> bs{c.b, c.b}, scales{c.b_scale, c.b_scale},
                biases{c.bias, c.bias}, results{c.result_scale, c.result_scale};
            const std::vector<std::optional<DType>> outs{out.dtype, std::nullopt};
            const bool fast[] = {true, false};
            const GatheredProducts got = fused_all_gather_scaled_matmul(
                rank.group, part_of(c.a, dim, rank), bs, a_scale, scales, dim,
                {biases, results, outs, fast}, {splits});
            const std::string what = fmt::format("{} along {}, by row {}, {} splits",
                                                 dtype_name(out.dtype), dim, by_row, splits);
            expect_equal(got.gathered, c.a, what);
            EXPECT_EQ(got.products[0].dtype(), out.dtype);
            expect_near(got.products[0], y, out.absolute, out.relative, what);
            EXPECT_EQ(got.products[1].dtype(), DType::kFloat8E4M3)
                << "A's dtype where none is given";
          }
        }
      }
    }
  });
}

TEST_P(ScaledMatmul, ReduceScatterAddsTheBiasOnceAfterTheAverage) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (const bool by_row : {false, true}) {
      for (int dim = 0; dim < 3; ++dim) {
        const Scaled c = make_case(rank.context, {4, 11, 13}, 7, by_row);
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
          const Tensor y = part_of(expected(c, op == ReduceOp::kAvg ? rank.size : 1), dim, rank);
          for (const Out& out : kOuts) {
            for (const int splits : {0, 3}) {
              const Tensor got = fused_scaled_matmul_reduce_scatter(
                  rank.group, part_of(c.a, 2, rank), part_of(c.b, 0, rank), c.a_scale, c.b_scale,
                  op, dim, {c.bias, c.result_scale, out.dtype}, {splits});
              EXPECT_EQ(got.dtype(), out.dtype);
              expect_near(got, y, out.absolute, out.relative,
                          fmt::format("{} {} along {}, by row {}, {} splits", reduce_op_name(op),
                                      dtype_name(out.dtype), dim, by_row, splits));
            }
          }
        }
      }
    }
  });
}

TEST_P(ScaledMatmul, ShardsOfOneRowAndNoneHaveScalesByRow) {
  run_fused(GetParam(), [](FusedRank& rank) {
    for (std::int64_t rows = 0; rows <= 10; ++rows) {
      const Scaled c = make_case(rank.context, {rows, 13}, 7, true);
      const std::optional<DType> out = DType::kFloat32;
      for (const int splits : {0, 2}) {
        const Tensor got =
            fused_all_gather_scaled_matmul(
                rank.group, part_of(c.a, 0, rank), {&c.b, 1}, part_of(c.a_scale, 0, rank),
                {&c.b_scale, 1}, 0, {{&c.bias, 1}, {&c.result_scale, 1}, {&out, 1}, {}}, {splits})
                .products[0];
        expect_near(got, expected(c, 1.0), 2e-5, 1e-5, fmt::format("{} rows", rows));
      }
    }
  });
}

TEST_P(ScaledMatmul, EachShardHasTheScaleOfItsRank) {
  run_fused(GetParam(), [](FusedRank& rank) {
    const Tensor ones = full(rank.context, {2, 4}, 1.0, DType::kFloat8E4M3);
    const Tensor b = full(rank.context, {4, 3}, 1.0, DType::kFloat8E4M3);
    const Tensor one = full(rank.context, {1}, 1.0, DType::kFloat32);
    const Tensor own = full(rank.context, {1}, rank.rank + 1, DType::kFloat32);
    const std::optional<DType> out = DType::kFloat32;
    for (const int splits : {0, 2}) {
      const Tensor y = fused_all_gather_scaled_matmul(rank.group, ones, {&b, 1}, own, {&one, 1}, 0,
                                                      {{}, {}, {&out, 1}, {}}, {splits})
                           .products[0];
      for (int r = 0; r < rank.size; ++r)
        expect_equal(ops::slice(y, 0, 2 * r, 2 * r + 2),
                     full(rank.context, {2, 3}, 4.0 * (r + 1), DType::kFloat32), "shard");
      const Tensor sum = fused_scaled_matmul_reduce_scatter(
          rank.group, ones, b, own, one, ReduceOp::kSum, 1, {{}, {}, out}, {splits});
      expect_equal(
          sum, full(rank.context, sum.shape(), 2.0 * rank.size * (rank.size + 1), DType::kFloat32),
          "sum");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ScaledMatmul, ::testing::Values(1, 2, 3, 4));

TEST(ScaledMatmulRounding, ResultsSaturateAndEveryCodeIsRead) {
  run_fused(2, [](FusedRank& rank) {
    // Row i of A is code i times 1: results are the codes' own values, in the other format too.
    for (const DType in : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      Tensor codes = empty(rank.context, {256, 1}, in);
      for (int i = 0; i < 256; ++i) codes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
      const Tensor b = full(rank.context, {1, 1}, 1.0, in);
      const Tensor one = full(rank.context, {1}, 1.0, DType::kFloat32);
      for (const DType to : {DType::kFloat32, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
        const std::optional<DType> out = to;
        const Tensor y =
            fused_all_gather_scaled_matmul(rank.group, part_of(codes, 0, rank), {&b, 1}, one,
                                           {&one, 1}, 0, {{}, {}, {&out, 1}, {}})
                .products[0];
        const std::vector<double> values = y.to_vector();
        for (int i = 0; i < 256; ++i) {
          const auto code = static_cast<std::uint8_t>(i);
          const float value =
              in == DType::kFloat8E4M3 ? float8_e4m3::to_float(code) : float8_e5m2::to_float(code);
          double rounded = value;
          if (to == DType::kFloat8E4M3) rounded = static_cast<float>(float8_e4m3(value));
          if (to == DType::kFloat8E5M2) rounded = static_cast<float>(float8_e5m2(value));
          if (std::isnan(rounded))
            EXPECT_TRUE(std::isnan(values[static_cast<std::size_t>(i)])) << i;
          else
            EXPECT_EQ(values[static_cast<std::size_t>(i)], rounded) << i;
        }
      }
    }
  });
}

TEST(ScaledMatmulRefusals, ListsScalesAndDTypes) {
  run_fused(2, [](FusedRank& rank) {
    if (rank.rank == 1) return;
    const Scaled c = make_case(rank.context, {4, 6}, 3, true);
    const std::vector<Tensor> bs{c.b, c.b}, scales{c.b_scale, c.b_scale};
    const auto refusal = [&](const Tensor& a, const Tensor& a_scale,
                             std::span<const Tensor> b_scales,
                             const ScaledLists& lists) -> std::string {
      try {
        fused_all_gather_scaled_matmul(rank.group, a, bs, a_scale, b_scales, 0, lists);
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "nothing was refused";
    };
    const std::vector<Tensor> one{c.bias};
    const bool fast[] = {true};
    const std::optional<DType> outs[] = {DType::kFloat32, DType::kInt32};
    EXPECT_THAT(refusal(c.a, c.a_scale, {&c.b_scale, 1}, {}), HasSubstr("1 B_scales for 2 Bs"));
    EXPECT_THAT(refusal(c.a, c.a_scale, scales, {one, {}, {}, {}}), HasSubstr("1 biases for 2 Bs"));
    EXPECT_THAT(refusal(c.a, c.a_scale, scales, {{}, one, {}, {}}),
                HasSubstr("1 result_scales for 2 Bs"));
    EXPECT_THAT(refusal(c.a, c.a_scale, scales, {{}, {}, {outs, 1}, {}}),
                HasSubstr("1 out_dtypes for 2 Bs"));
    EXPECT_THAT(refusal(c.a, c.a_scale, scales, {{}, {}, {}, fast}),
                HasSubstr("1 use_fast_accum for 2 Bs"));
    EXPECT_THAT(refusal(c.a, c.a_scale, scales, {{}, {}, outs, {}}),
                HasSubstr("out_dtype is int32"));
    EXPECT_THAT(refusal(c.a, c.bias, scales, {}), HasSubstr("A_scale has shape [3], expected one"));
    const Tensor wide = numbers(rank.context, {4, 6}, DType::kBFloat16, 1);
    EXPECT_THAT(refusal(wide, c.a_scale, scales, {}),
                HasSubstr("A is bfloat16 and B float8_e5m2, expected float8"));
  });
}

}  // namespace
}  // namespace meshloom::comm
