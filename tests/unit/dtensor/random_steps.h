// SPDX-License-Identifier: Apache-2.0
// Builds a random program step by step. While building, steps run on tensors of one rank, so that
// the shapes of all results are known.
#pragma once

#include "tests/support/test_context.h"
#include "tests/unit/dtensor/random_program.h"

namespace meshloom::dtensor {

class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::mt19937_64& rng) : rng_(rng) {}

  /// The first tensor: a leaf made positive, an embedding or attention.
  void start();
  void add_step();
  bool ended() const { return ended_; }
  Program finish();

  /// Picks a number in [low, high].
  int pick(int low, int high);
  bool chance(double probability);

 private:
  using Inputs = const std::vector<Tensor>&;
  using Outputs = std::vector<Tensor>;

  Ref leaf(const Shape& shape, double low = -1.0, double high = 1.0, DType dtype = DType::kFloat64);
  /// int64 in [0, limit), but for the first sometimes `ignored` (where that is negative).
  Ref ids(const Shape& shape, std::int64_t limit, std::int64_t ignored = 0);
  Ref mask(const Shape& shape);
  /// A result to go on with: mostly the last.
  Ref some_result();
  Shape random_shape(int min_dims, int max_dims);
  /// Some dims made 1, some leading ones left out.
  Shape broadcastable(const Shape& shape);
  int random_dim(const Shape& shape) { return pick(0, shape.size() - 1); }
  /// Returns the same dim, sometimes counted from the end of `ndim` dims.
  std::int64_t maybe_negative(std::int64_t dim, int ndim) { return chance(0.3) ? dim - ndim : dim; }
  const Tensor& value(const Ref& ref) const;
  const Shape& shape_of(const Ref& ref) const { return value(ref).shape(); }
  void step(std::string text, std::vector<Ref> inputs, std::function<Outputs(Inputs)> run);

  void start_embedding();
  void start_attention();
  void unary(const Ref& x);
  void binary(const Ref& x);
  void masked(const Ref& x);
  void reduction(const Ref& x);
  void rows(const Ref& x);
  void product(const Ref& x);
  void linear_layer(const Ref& x);
  void view(const Ref& x);
  void relayout(const Ref& x);
  void regroup(const Ref& x);
  void pieces(const Ref& x);
  void loss(const Ref& x);
  void linear_loss(const Ref& x);

  std::mt19937_64& rng_;
  testing::TestContext context_;
  std::vector<Tensor> leaves_, results_;
  Program program_;
  bool ended_ = false;
  bool nothing_ = false;  ///< the program is about tensors without elements
};

}  // namespace meshloom::dtensor
