// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/matmul_layout.h"

#include <gtest/gtest.h>

namespace meshloom::kernels::cuda {
namespace {

// Addresses are only looked at, never followed.
TensorView view(const Shape& shape, const Strides& strides, std::uintptr_t address = 4096,
                DType dtype = DType::kBFloat16) {
  return {reinterpret_cast<void*>(address), dtype, shape, strides, {DeviceKind::kCuda, 0}};
}
TensorView dense(const Shape& shape) { return view(shape, contiguous_strides(shape)); }

TEST(MatmulLayout, RowsOrColumnsMustBeDense) {
  EXPECT_EQ(matrix_layout(view({3, 5}, {5, 1})), (MatrixLayout{false, 5}));
  EXPECT_EQ(matrix_layout(view({3, 5}, {9, 1})), (MatrixLayout{false, 9}));
  EXPECT_EQ(matrix_layout(view({3, 5}, {1, 3})), (MatrixLayout{true, 3}));
  EXPECT_EQ(matrix_layout(view({3, 5}, {1, 7})), (MatrixLayout{true, 7}));
  EXPECT_FALSE(matrix_layout(view({3, 5}, {10, 2})));
  EXPECT_FALSE(matrix_layout(view({3, 5}, {0, 1}))) << "rows that repeat";
  EXPECT_FALSE(matrix_layout(view({3, 5}, {4, 1}))) << "rows that overlap";
}

TEST(MatmulLayout, ALineHasTheStrideOfItsElements) {
  EXPECT_EQ(matrix_layout(view({1, 5}, {77, 1})), (MatrixLayout{false, 5}));
  EXPECT_EQ(matrix_layout(view({3, 1}, {4, 77})), (MatrixLayout{false, 4}));
  EXPECT_EQ(matrix_layout(view({1, 5}, {77, 4})), (MatrixLayout{true, 4}));
}

TEST(MatmulLayout, ALinearLayerIsOneProduct) {
  ProductViews views{dense({2, 3, 5}), dense({2, 3, 4}), view({2, 4, 5}, {0, 1, 4}), {}};
  const ProductViews few = folded(views);
  EXPECT_EQ(few.y.shape, (Shape{6, 5}));
  EXPECT_EQ(few.a.shape, (Shape{6, 4}));
  EXPECT_EQ(few.b.shape, (Shape{4, 5}));
  const MatmulShape shape = matmul_shape(few, LibraryEpilogue::kNone);
  EXPECT_EQ(shape.m, 6);
  EXPECT_EQ(shape.batch, 1);
  EXPECT_TRUE(shape.b.transposed);
}

TEST(MatmulLayout, OneRowOfEachBatchBecomesRows) {
  ProductViews views{
      view({7, 1, 5}, {20, 5, 1}), view({7, 1, 4}, {4, 4, 1}), view({7, 4, 5}, {0, 5, 1}), {}};
  const ProductViews few = folded(views);
  EXPECT_EQ(few.y.shape, (Shape{7, 5}));
  EXPECT_EQ(few.y.strides, (Strides{20, 1}));
  // A row that repeats cannot be rows of a matrix.
  views.a.strides[0] = 0;
  EXPECT_EQ(folded(views).y.shape, (Shape{7, 1, 5}));
}

TEST(MatmulLayout, HeadsOfAPackedProjectionAreABatchInALoop) {
  // q and k of [B, S, 3, H, D] as [B, H, S, D]; scores dense.
  constexpr std::int64_t kB = 2, kH = 6, kS = 8, kD = 16;
  const Strides heads{kS * 3 * kH * kD, kD, 3 * kH * kD, 1};
  TensorView k = view({kB, kH, kD, kS}, {heads[0], heads[1], 1, heads[2]});
  const ProductViews few = folded({dense({kB, kH, kS, kS}), view({kB, kH, kS, kD}, heads), k, {}});
  EXPECT_EQ(few.y.shape, (Shape{kB, kH, kS, kS}));
  EXPECT_EQ(loop_count(few.y), kB);
  EXPECT_EQ(loop_offset(few.a, 1), heads[0]);
  const MatmulShape shape = matmul_shape(few, LibraryEpilogue::kNone);
  EXPECT_EQ(shape.batch, kH);
  EXPECT_EQ(shape.a, (MatrixLayout{false, 3 * kH * kD, kD, 16}));
  EXPECT_EQ(shape.b, (MatrixLayout{true, 3 * kH * kD, kD, 16}));
  EXPECT_EQ(shape.y, (MatrixLayout{false, kS, kS * kS, 16}));
}

TEST(MatmulLayout, TheLargestDimIsTheBatch) {
  // Neither dim of a can be merged with the other.
  const ProductViews few = folded({dense({9, 2, 3, 5}),
                                   view({9, 2, 3, 4}, {100, 4000, 4, 1}),
                                   view({9, 2, 4, 5}, {50, 2000, 5, 1}),
                                   {}});
  EXPECT_EQ(few.y.shape, (Shape{2, 9, 3, 5}));
  EXPECT_EQ(few.a.strides, (Strides{4000, 100, 4, 1}));
  EXPECT_EQ(loop_count(few.y), 2);
}

TEST(MatmulLayout, MissingAndSingleDimsRepeat) {
  const ProductViews few =
      folded({dense({3, 2, 5}), view({1, 2, 4}, {8, 4, 1}), dense({3, 4, 5}), {}});
  EXPECT_EQ(few.a.stride(0), 0);
  const ProductViews lower = folded({dense({3, 2, 5}), dense({3, 2, 4}), dense({4, 5}), {}});
  EXPECT_EQ(lower.y.shape, (Shape{6, 5}));
}

TEST(MatmulLayout, AlignmentIsThatOfEveryMatrix) {
  const auto of = [](const TensorView& v) { return matrix_alignment(v, *matrix_layout(v)); };
  EXPECT_EQ(of(view({2, 4, 8}, {32, 8, 1})), 16);
  EXPECT_EQ(of(view({2, 4, 8}, {32, 8, 1}, 4096 + 8)), 8);
  EXPECT_EQ(of(view({2, 4, 6}, {24, 6, 1})), 4) << "rows of 12 bytes";
  EXPECT_EQ(of(view({2, 4, 8}, {33, 8, 1})), 2) << "batch of 66 bytes";
  EXPECT_EQ(of(view({4, 3}, {3, 1}, 4096, DType::kFloat64)), 8);
}

TEST(MatmulLayout, SwappedIsTheTransposedProduct) {
  const ProductViews views{view({3, 5}, {1, 3}), dense({3, 4}), dense({4, 5}), {}};
  const ProductViews other = swapped(views);
  EXPECT_EQ(other.y.strides, (Strides{3, 1}));
  EXPECT_EQ(other.a.shape, (Shape{5, 4}));
  EXPECT_EQ(other.a.strides, (Strides{1, 5}));
  EXPECT_EQ(other.b.shape, (Shape{4, 3}));
}

TEST(MatmulLayout, PlansOfDifferentShapesDiffer) {
  const ProductViews views{dense({3, 8}), dense({3, 8}), dense({8, 8}), {}};
  const MatmulShape shape = matmul_shape(views, LibraryEpilogue::kNone);
  EXPECT_EQ(shape, matmul_shape(views, LibraryEpilogue::kNone));
  EXPECT_NE(shape, matmul_shape(views, LibraryEpilogue::kBias));
  ProductViews other = views;
  other.y.dtype = DType::kFloat32;
  EXPECT_NE(shape, matmul_shape(other, LibraryEpilogue::kNone));
  other = views;
  other.a.data = reinterpret_cast<void*>(4096 + 2);
  EXPECT_NE(shape, matmul_shape(other, LibraryEpilogue::kNone));
  other.a.data = reinterpret_cast<void*>(8192);
  EXPECT_EQ(shape, matmul_shape(other, LibraryEpilogue::kNone)) << "addresses alone";
}

}  // namespace
}  // namespace meshloom::kernels::cuda
