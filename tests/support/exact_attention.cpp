// SPDX-License-Identifier: Apache-2.0
#include "tests/support/exact_attention.h"

#include <algorithm>
#include <cmath>

namespace meshloom::testing {
namespace {

double dot(const double* a, const double* b, std::size_t n) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t e = 0; e < 8; ++e) sums[e] += a[i + e] * b[i + e];
  double sum = 0.0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const double part : sums) sum += part;
  return sum;
}

void add(double* y, double factor, const double* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace

AttentionResults exact_attention(const AttentionHead& head) {
  const auto n = static_cast<std::size_t>(head.length), d = static_cast<std::size_t>(head.dims);
  const auto dv = static_cast<std::size_t>(head.dims_v);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head.dims));
  AttentionResults exact{std::vector<double>(n * dv, 0.0), std::vector<double>(n, 0.0),
                         std::vector<double>(n * d, 0.0), std::vector<double>(n * d, 0.0),
                         std::vector<double>(n * dv, 0.0)};
  std::vector<double> p(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t seen = head.is_causal ? i + 1 : n;
    const double* q = &head.q[i * d];
    const double* grad = &head.grad_o[i * dv];
    double most = -INFINITY, sum = 0.0;
    for (std::size_t j = 0; j < seen; ++j)
      most = std::max(most, p[j] = scale * dot(q, &head.k[j * d], d));
    for (std::size_t j = 0; j < seen; ++j) sum += p[j] = std::exp(p[j] - most);
    exact.lse[i] = most + std::log(sum);
    double* o = &exact.o[i * dv];
    for (std::size_t j = 0; j < seen; ++j) add(o, p[j] /= sum, &head.v[j * dv], dv);
    const double delta = dot(o, grad, dv);
    for (std::size_t j = 0; j < seen; ++j) {
      const double ds = scale * p[j] * (dot(grad, &head.v[j * dv], dv) - delta);
      add(&exact.dq[i * d], ds, &head.k[j * d], d);
      add(&exact.dk[j * d], ds, q, d);
      add(&exact.dv[j * dv], p[j], grad, dv);
    }
  }
  return exact;
}

Deviation deviation(const std::vector<double>& seen, const std::vector<double>& exact) {
  Deviation result;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double difference = seen[i] - exact[i];
    result.rms += difference * difference;
    // NaN must not pass as the smaller one.
    if (!(std::abs(difference) <= result.largest)) result.largest = std::abs(difference);
  }
  result.rms = std::sqrt(result.rms / static_cast<double>(std::max<std::size_t>(1, seen.size())));
  return result;
}

ErrorShare error_share(const std::vector<double>& seen, const std::vector<double>& one_rank,
                       const std::vector<double>& exact, double epsilon) {
  const Deviation here = deviation(seen, exact), local = deviation(one_rank, exact);
  const Deviation values = deviation(exact, std::vector<double>(exact.size(), 0.0));
  const auto share = [](double error, double allowed) {
    return error == 0.0 ? 0.0 : error / allowed;
  };
  return {share(here.rms, 1.25 * local.rms + 0.25 * epsilon * values.rms),
          share(here.largest, 2.0 * local.largest + epsilon * values.largest)};
}

}  // namespace meshloom::testing
