// SPDX-License-Identifier: Apache-2.0
// An attention problem that answers itself, on tensors of any class that has shape() and at().
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
  double at(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t c) const {
    const Shape& shape = t.shape();
    return t.at(((b * shape[1] + h) * shape[2] + s) * shape[3] + c);
  }
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
  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!visible(b, i, j)) return -kInfinity;
    double sum = 0.0;
    for (std::int64_t c = 0; c < n.d; ++c) sum += at(q, b, h, i, c) * at(k, b, head(h), j, c);
    sum *= options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(n.d));
    if (options.bias.defined()) sum += bias.at(bias_index(b, h, i, j));
    if (options.alibi_slopes.defined())
      sum -=
          slopes.at(h) *
          static_cast<double>(std::abs(query_position(i) + options.query_offset - key_position(j)));
    return sum;
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

/// Forward and backward by textbook formulas in double on whole matrices.
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
  const double scale =
      p.options.scale != 0.0 ? p.options.scale : 1.0 / std::sqrt(static_cast<double>(n.d));
  std::vector<double> w(n.skv);
  for (std::int64_t b = 0; b < n.b; ++b)
    for (std::int64_t h = 0; h < n.hq; ++h)
      for (std::int64_t i = 0; i < n.sq; ++i) {
        const std::int64_t row = (b * n.hq + h) * n.sq + i, g = p.head(h);
        double top = -kInfinity, sum = 0.0;
        for (std::int64_t j = 0; j < n.skv; ++j) top = std::max(top, w[j] = p.score(b, h, i, j));
        for (std::int64_t j = 0; j < n.skv; ++j)
          sum += w[j] = std::isinf(w[j]) ? 0.0 : std::exp(w[j] - top);
        a.lse[row] = sum > 0.0 ? top + std::log(sum) : -kInfinity;
        for (std::int64_t j = 0; j < n.skv; ++j) {
          if (sum > 0.0) w[j] /= sum;
          for (std::int64_t c = 0; c < n.dv; ++c)
            a.o[row * n.dv + c] += w[j] * p.keep(b, h, i, j) * p.at(p.v, b, g, j, c);
        }
        for (std::int64_t c = 0; c < n.dv; ++c)
          a.delta[row] += p.at(p.grad_o, b, h, i, c) * a.o[row * n.dv + c];
        for (std::int64_t j = 0; j < n.skv; ++j) {
          const double keep = p.keep(b, h, i, j);
          const std::int64_t key = (b * n.hkv + g) * n.skv + j;
          double dp = 0.0;
          for (std::int64_t c = 0; c < n.dv; ++c) {
            dp += keep * p.at(p.grad_o, b, h, i, c) * p.at(p.v, b, g, j, c);
            a.dv[key * n.dv + c] += w[j] * keep * p.at(p.grad_o, b, h, i, c);
          }
          const double ds = w[j] * (dp - a.delta[row]);
          a.dbias[row * n.skv + j] = ds;
          for (std::int64_t c = 0; c < n.d; ++c) {
            a.dq[row * n.d + c] += scale * ds * p.at(p.k, b, g, j, c);
            a.dk[key * n.d + c] += scale * ds * p.at(p.q, b, h, i, c);
          }
        }
      }
  return a;
}

/// Within tolerance * (1 + |want|) for all elements; infinities are equal.
inline void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                        double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], want[i]) << what << " at " << i;
      continue;
    }
    ASSERT_FALSE(std::isnan(got[i])) << what << " at " << i;
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i]))) << what << " at " << i;
  }
}

}  // namespace meshloom::testing
