// SPDX-License-Identifier: Apache-2.0
// An attention problem that answers itself, on tensors of any class that has shape(), at() and
// values().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/backend.h"

namespace meshloom::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct AttentionSizes {
  std::int64_t b = 1, hq = 1, hkv = 1, sq = 1, skv = 1, d = 8, dv = 8;
};

/// The options show the tensors beside them. `bias` is dense, with sizes of 1 where it is
/// broadcast.
template <typename Tensor>
struct AttentionProblem {
  AttentionSizes n{};
  kernels::AttentionOptions options{};
  Tensor q{}, k{}, v{}, grad_o{};
  Tensor bias{}, slopes{}, query_positions{}, key_positions{}, query_documents{}, key_documents{};

  std::int64_t head(std::int64_t h) const { return h / (n.hq / n.hkv); }
  std::int64_t query_position(std::int64_t i) const {
    return options.query_positions.defined() ? static_cast<std::int64_t>(query_positions.at(i)) : i;
  }
  std::int64_t key_position(std::int64_t j) const {
    return options.key_positions.defined() ? static_cast<std::int64_t>(key_positions.at(j))
                                           : options.key_offset + j;
  }
  bool visible(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t qp = query_position(i) + options.query_offset, kp = key_position(j);
    if (options.is_causal && kp > qp) return false;
    if (options.window_left >= 0 && qp - kp > options.window_left) return false;
    if (options.window_right >= 0 && kp - qp > options.window_right) return false;
    return !options.query_documents.defined() ||
           query_documents.at(b * n.sq + i) == key_documents.at(b * n.skv + j);
  }
  /// The index, in row-major order, of the element that is added to a score.
  std::int64_t bias_index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Shape& shape = bias.shape();
    return ((b % shape[0] * shape[1] + h % shape[1]) * shape[2] + i % shape[2]) * shape[3] +
           j % shape[3];
  }
  /// The score that softmax takes, of the product of query i and key j.
  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
               double product) const {
    double sum = product * scale();
    if (options.bias.defined()) sum += bias.at(bias_index(b, h, i, j));
    if (options.alibi_slopes.defined())
      sum -=
          slopes.at(h) *
          static_cast<double>(std::abs(query_position(i) + options.query_offset - key_position(j)));
    return sum;
  }
  double scale() const {
    return options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(n.d));
  }
  double keep(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (options.dropout_p == 0.0f) return 1.0;
    const std::int64_t row =
        (options.dropout_first_head + b * n.hq + h) * options.dropout_total_queries +
        query_position(i);
    const auto index =
        static_cast<std::uint64_t>(row * options.dropout_total_keys + key_position(j));
    const float u = philox_uniform(options.dropout_random.at(index));
    return u < options.dropout_p ? 0.0 : 1.0 / (1.0 - options.dropout_p);
  }
  kernels::AttentionInputs inputs() const { return {q.view(), k.view(), v.view()}; }
};

struct AttentionAnswers {
  std::vector<double> o, lse, delta, dq, dk, dv, dbias;
};

/// A tensor [B, H, S, C] in double, which is faster to ask than one that converts and has strides.
template <typename Tensor>
class DenseRows {
 public:
  explicit DenseRows(const Tensor& t) : shape_(t.shape()), values_(t.values()) {}
  const double* row(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return values_.data() + ((b * shape_[1] + h) * shape_[2] + s) * shape_[3];
  }

 private:
  const Shape shape_;
  const std::vector<double> values_;
};

/// Forward and backward by textbook formulas in double on whole matrices. Of a key with weight 0
/// nothing is added.
template <typename Tensor>
AttentionAnswers brute_force(const AttentionProblem<Tensor>& p) {
  const AttentionSizes& n = p.n;
  AttentionAnswers a;
  a.o.resize(n.b * n.hq * n.sq * n.dv);
  a.lse.resize(n.b * n.hq * n.sq);
  a.delta.resize(a.lse.size());
  a.dq.resize(n.b * n.hq * n.sq * n.d);
  a.dk.resize(n.b * n.hkv * n.skv * n.d);
  a.dv.resize(n.b * n.hkv * n.skv * n.dv);
  a.dbias.resize(n.b * n.hq * n.sq * n.skv);
  const DenseRows q(p.q), k(p.k), v(p.v), grad_o(p.grad_o);
  const auto product = [](const double* x, const double* y, std::int64_t count) {
    return std::inner_product(x, x + count, y, 0.0);
  };
  const auto add = [](double* sums, double factor, const double* x, std::int64_t count) {
    for (std::int64_t c = 0; c < count; ++c) sums[c] += factor * x[c];
  };
  std::vector<double> w(n.skv);
  for (std::int64_t b = 0; b < n.b; ++b)
    for (std::int64_t h = 0; h < n.hq; ++h)
      for (std::int64_t i = 0; i < n.sq; ++i) {
        const std::int64_t row = (b * n.hq + h) * n.sq + i, g = p.head(h);
        const double *const query = q.row(b, h, i), *const gradient = grad_o.row(b, h, i);
        double top = -kInfinity, sum = 0.0;
        for (std::int64_t j = 0; j < n.skv; ++j) {
          w[j] = p.visible(b, i, j) ? p.score(b, h, i, j, product(query, k.row(b, g, j), n.d))
                                    : -kInfinity;
          top = std::max(top, w[j]);
        }
        for (std::int64_t j = 0; j < n.skv; ++j)
          sum += w[j] = std::isinf(w[j]) ? 0.0 : std::exp(w[j] - top);
        a.lse[row] = sum > 0.0 ? top + std::log(sum) : -kInfinity;
        double* const o = a.o.data() + row * n.dv;
        for (std::int64_t j = 0; j < n.skv; ++j) {
          if (w[j] == 0.0) continue;
          w[j] /= sum;
          add(o, w[j] * p.keep(b, h, i, j), v.row(b, g, j), n.dv);
        }
        a.delta[row] = product(gradient, o, n.dv);
        for (std::int64_t j = 0; j < n.skv; ++j) {
          if (w[j] == 0.0) continue;
          const double keep = p.keep(b, h, i, j);
          const std::int64_t key = (b * n.hkv + g) * n.skv + j;
          const double ds = w[j] * (keep * product(gradient, v.row(b, g, j), n.dv) - a.delta[row]);
          a.dbias[row * n.skv + j] = ds;
          add(a.dv.data() + key * n.dv, w[j] * keep, gradient, n.dv);
          add(a.dq.data() + row * n.d, p.scale() * ds, k.row(b, g, j), n.d);
          add(a.dk.data() + key * n.d, p.scale() * ds, query, n.d);
        }
      }
  return a;
}

}  // namespace meshloom::testing
