// SPDX-License-Identifier: Apache-2.0
// Charts show curves as text of braille characters and as SVG.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace meshloom::cli {

struct Curve {
  std::string name;
  std::map<std::int64_t, double> points;  ///< finite values by step
};

struct ChartOptions {
  int columns = 80;  ///< of the whole chart with its axis; at least 24
  int rows = 20;     ///< of the curves
  /// Curves are drawn over each other in colours; without, each gets a chart of its own with the
  /// same axes.
  bool colour = false;
};

/// Returns lines of at most `columns` characters: the curves in cells of 2 x 4 dots, the values at
/// the top and bottom, the first and last step, the names with their last values. A column shows
/// the mean of more points than it has dots. Empty if there are no points.
std::string braille_chart(const std::vector<Curve>& curves, const ChartOptions& options);

/// Returns a whole SVG file, 800 x 480, with axes, grid and legend. Empty if there are no points.
std::string svg_chart(const std::vector<Curve>& curves, const std::string& title);

}  // namespace meshloom::cli
