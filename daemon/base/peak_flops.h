// SPDX-License-Identifier: Apache-2.0
// What a rank of this host could compute, measured once by `meshloom-bench peak` and kept in the
// state dir: a CPU's peak is not known otherwise, and a daemon times nothing by itself.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace meshloom::base {

struct PeakFlops {
  std::string compute_class;  ///< of the CPU, or of the device that it computes on
  int threads = 1;            ///< of a rank
  double float32 = 0.0;       ///< operations a second
  double bfloat16 = 0.0;

  double of(const std::string& dtype) const { return dtype == "bfloat16" ? bfloat16 : float32; }
};

/// Replaces STATE_DIR/peak_flops.json as a whole. Throws IoError.
void write_peak_flops(const std::filesystem::path& state_dir, const PeakFlops& peak);

/// Returns what was measured; nothing if none was, if what is there cannot be read, which is
/// logged, and if it was measured on another class or with another number of threads.
std::optional<PeakFlops> read_peak_flops(const std::filesystem::path& state_dir,
                                         const std::string& compute_class, int threads);

}  // namespace meshloom::base
