// SPDX-License-Identifier: Apache-2.0
// Attention of one head in float64, forward and backward, and how far other results are from it.
#pragma once

#include <cstdint>
#include <vector>

namespace meshloom::testing {

/// q, k [S,D]; v [S,Dv]; row-major. The scale is 1 / sqrt(D).
struct AttentionHead {
  std::int64_t length = 0, dims = 0, dims_v = 0;
  bool is_causal = true;
  std::vector<double> q{}, k{}, v{}, grad_o{};
};

/// AttentionResults are those of attention of one head, however it was computed.
struct AttentionResults {
  std::vector<double> o, lse;      ///< [S,Dv], [S]
  std::vector<double> dq, dk, dv;  ///< for grad_o
};

AttentionResults exact_attention(const AttentionHead& head);

/// Root of the mean square, and the largest magnitude, of a difference or of the values themselves.
struct Deviation {
  double rms = 0.0, largest = 0.0;
};
Deviation deviation(const std::vector<double>& seen, const std::vector<double>& exact);

/// What an error is of what is allowed, at most 1 where all is well: in the mean square 1.25 times
/// the error of attention on one rank and a quarter of `epsilon` times the values' own; at the most
/// twice that error and one epsilon times the largest value.
struct ErrorShare {
  double rms = 0.0, largest = 0.0;
};
ErrorShare error_share(const std::vector<double>& seen, const std::vector<double>& one_rank,
                       const std::vector<double>& exact, double epsilon);

}  // namespace meshloom::testing
