// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/output/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace meshloom::cli {
namespace {

/// What all curves lie in.
struct Range {
  std::int64_t first = 0, last = 0;
  double low = 0, high = 0;

  double share_of_step(double step) const {
    return last == first ? 0.0
                         : (step - static_cast<double>(first)) / static_cast<double>(last - first);
  }
  /// 0 at the bottom.
  double share_of_value(double value) const {
    return high == low ? 0.5 : (value - low) / (high - low);
  }
};

std::optional<Range> range_of(const std::vector<Curve>& curves) {
  std::optional<Range> range;
  for (const Curve& curve : curves) {
    for (const auto& [step, value] : curve.points) {
      if (!range) range = Range{step, step, value, value};
      range->first = std::min(range->first, step);
      range->last = std::max(range->last, step);
      range->low = std::min(range->low, value);
      range->high = std::max(range->high, value);
    }
  }
  return range;
}

/// Dots of `columns` x `rows` braille cells; each cell keeps which curve came last.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns),
        rows_(rows),
        cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)) {}

  void draw(const Curve& curve, const Range& range, int number) {
    const int width = 2 * columns_, height = 4 * rows_;
    std::vector<double> sums(static_cast<std::size_t>(width), 0.0), counts = sums;
    for (const auto& [step, value] : curve.points) {
      const auto x = static_cast<std::size_t>(
          std::lround(range.share_of_step(static_cast<double>(step)) * (width - 1)));
      sums[x] += value;
      counts[x] += 1;
    }
    int before_x = -1, before_y = 0;
    for (int x = 0; x < width; ++x) {
      const auto at = static_cast<std::size_t>(x);
      if (counts[at] == 0) continue;
      const double up = range.share_of_value(sums[at] / counts[at]);
      const int y = height - 1 - static_cast<int>(std::lround(up * (height - 1)));
      if (before_x < 0) dot(x, y, number);
      // A line from the point before, so that few points are a curve as well.
      for (int i = before_x + 1; before_x >= 0 && i <= x; ++i)
        line(i, between(before_x, before_y, x, y, i - 1), between(before_x, before_y, x, y, i),
             number);
      before_x = x;
      before_y = y;
    }
  }

  /// A row as text; `paint` gets a curve's number and its characters.
  template <typename Paint>
  std::string row(int y, const Paint& paint) const {
    std::string text, part;
    int number = -1;
    for (int x = 0; x < columns_; ++x) {
      const Cell& cell = cells_[index(x, y)];
      if (cell.number != number) {
        text += number < 0 ? part : paint(number, part);
        part.clear();
        number = cell.number;
      }
      part += cell.dots == 0 ? " " : braille(cell.dots);
    }
    text += number < 0 ? part : paint(number, part);
    const auto end = text.find_last_not_of(' ');
    return end == std::string::npos ? "" : text.substr(0, end + 1);
  }

 private:
  struct Cell {
    unsigned dots = 0;
    int number = -1;
  };

  static int between(int x0, int y0, int x1, int y1, int x) {
    return y0 + static_cast<int>(std::lround(static_cast<double>(y1 - y0) * (x - x0) / (x1 - x0)));
  }

  /// U+2800 and the dots, in UTF-8.
  static std::string braille(unsigned dots) {
    const unsigned code = 0x2800 + dots;
    return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
            static_cast<char>(0x80 | (code & 0x3F))};
  }

  std::size_t index(int x, int y) const { return static_cast<std::size_t>(y * columns_ + x); }

  void line(int x, int from, int to, int number) {
    for (int y = std::min(from, to); y <= std::max(from, to); ++y) dot(x, y, number);
  }

  void dot(int x, int y, int number) {
    // Unicode numbers the dots of a cell 1 2 3 7 down the left and 4 5 6 8 down the right.
    constexpr std::array<std::array<unsigned, 4>, 2> kDots = {
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    Cell& cell = cells_[index(x / 2, y / 4)];
    cell.dots |= kDots[static_cast<std::size_t>(x % 2)][static_cast<std::size_t>(y % 4)];
    cell.number = number;
  }

  int columns_, rows_;
  std::vector<Cell> cells_;
};

std::string value_text(double value) { return fmt::format("{:.4g}", value); }

std::string coloured(int number, const std::string& text) {
  return fmt::format("\033[{}m{}\033[0m", 31 + number % 6, text);
}

std::string legend(const Curve& curve, int columns) {
  std::string name = curve.name;
  const std::string last =
      curve.points.empty() ? "nothing"
                           : fmt::format("{} at step {}", value_text(curve.points.rbegin()->second),
                                         curve.points.rbegin()->first);
  const auto room =
      static_cast<std::size_t>(std::max(columns, 24)) - std::min<std::size_t>(last.size() + 4, 20);
  if (name.size() > room) name.resize(room);
  return fmt::format("{}: {}", name, last);
}

/// One canvas with its axes. `numbers`: which of the curves are drawn.
std::string draw_chart(const std::vector<Curve>& curves, const std::vector<int>& numbers,
                       const Range& range, const ChartOptions& options) {
  const std::string top = value_text(range.high), bottom = value_text(range.low);
  const int margin = static_cast<int>(std::max(top.size(), bottom.size())) + 2;
  Canvas canvas(std::max(options.columns, 24) - margin, options.rows);
  for (const int number : numbers)
    canvas.draw(curves[static_cast<std::size_t>(number)], range, number);
  const auto paint = [&](int number, const std::string& text) {
    return options.colour ? coloured(number, text) : text;
  };
  std::string text;
  for (int y = 0; y < options.rows; ++y) {
    const std::string label = y == 0 ? top : y == options.rows - 1 ? bottom : "";
    text += fmt::format("{:>{}} |{}\n", label, margin - 2, canvas.row(y, paint));
  }
  const std::string first = std::to_string(range.first), last = std::to_string(range.last);
  const int gap = std::max(options.columns, 24) - margin - static_cast<int>(first.size());
  text += fmt::format("{:>{}}{}{:>{}}\n", "", margin, first, last, std::max(gap, 1));
  for (const int number : numbers)
    text += paint(number, legend(curves[static_cast<std::size_t>(number)], options.columns)) + "\n";
  return text;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      default: safe += c;
    }
  }
  return safe;
}

/// Steps of 1, 2 or 5 times a power of ten: about `wanted` of them in the range.
std::vector<double> ticks(double low, double high, int wanted) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = power * (rough / power > 5   ? 10
                               : rough / power > 2 ? 5
                               : rough / power > 1 ? 2
                                                   : 1);
  const double first = std::ceil(low / step) * step;
  std::vector<double> at;
  // Counted, since a step below the precision of the values would never come to the end.
  for (int i = 0; i <= wanted + 1; ++i) {
    const double value = first + i * step;
    if (!(value <= high + step * 1e-9)) break;
    at.push_back(std::abs(value) < step * 1e-9 ? 0.0 : value);
  }
  return at;
}

/// Where points are in the picture, and what is drawn there.
struct SvgPlot {
  static constexpr double kLeft = 70, kTop = 40, kWidth = 700, kHeight = 370;
  const Range range;

  double x_of(double step) const { return kLeft + kWidth * range.share_of_step(step); }
  double y_of(double value) const { return kTop + kHeight * (1.0 - range.share_of_value(value)); }

  std::string grid() const {
    std::string svg;
    for (const double value : ticks(range.low, range.high, 6))
      svg += fmt::format(
          "<line x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
          kLeft, kLeft + kWidth, y_of(value), kLeft - 6, y_of(value) + 4, value_text(value));
    for (const double step :
         ticks(static_cast<double>(range.first), static_cast<double>(range.last), 8))
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#eeeeee\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:.0f}</text>\n",
          x_of(step), kTop, kTop + kHeight, kTop + kHeight + 18, step);
    return svg;
  }

  /// With its name, below those of the curves before.
  std::string curve(const Curve& curve, std::size_t number) const {
    constexpr std::array<const char*, 6> kColours = {"#1b6ca8", "#c8553d", "#3a7d44",
                                                     "#8e5aa8", "#b8860b", "#4d4d4d"};
    const char* colour = kColours[number % kColours.size()];
    std::string svg =
        fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"", colour);
    for (const auto& [step, value] : curve.points)
      svg += fmt::format("{:.1f},{:.1f} ", x_of(static_cast<double>(step)), y_of(value));
    const double y = kTop + 16 + 18 * static_cast<double>(number);
    return svg + fmt::format(
                     "\"/>\n<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\" "
                     "fill=\"{}\">{}</text>\n",
                     kLeft + kWidth - 8, y, colour, escaped(legend(curve, 80)));
  }
};

}  // namespace

std::string braille_chart(const std::vector<Curve>& curves, const ChartOptions& options) {
  const auto range = range_of(curves);
  if (!range) return "";
  std::vector<int> all;
  for (std::size_t i = 0; i < curves.size(); ++i) all.push_back(static_cast<int>(i));
  if (options.colour || curves.size() == 1) return draw_chart(curves, all, *range, options);
  std::string text;
  for (const int number : all)
    text += (text.empty() ? "" : "\n") + draw_chart(curves, {number}, *range, options);
  return text;
}

std::string svg_chart(const std::vector<Curve>& curves, const std::string& title) {
  const auto range = range_of(curves);
  if (!range) return "";
  const SvgPlot plot{*range};
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"480\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"800\" height=\"480\" fill=\"white\"/>\n";
  svg += fmt::format("<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n", SvgPlot::kLeft,
                     escaped(title));
  svg += plot.grid();
  for (std::size_t i = 0; i < curves.size(); ++i) svg += plot.curve(curves[i], i);
  return svg + "</svg>\n";
}

}  // namespace meshloom::cli
