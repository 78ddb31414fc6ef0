// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/goodput.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::base {

void add_lost(const std::string& cause, double seconds, v1::Goodput* goodput) {
  v1::LostSeconds& lost = *goodput->mutable_lost();
  const auto* field = v1::LostSeconds::descriptor()->FindFieldByName(cause);
  if (!field) throw InternalError("LostSeconds has no field " + cause);
  const auto* reflection = v1::LostSeconds::GetReflection();
  reflection->SetDouble(&lost, field, reflection->GetDouble(lost, field) + seconds);
}

std::vector<std::pair<std::string, double>> lost_seconds(const v1::Goodput& goodput) {
  std::vector<std::pair<std::string, double>> all;
  const auto* descriptor = v1::LostSeconds::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const double seconds = v1::LostSeconds::GetReflection()->GetDouble(goodput.lost(), field);
    if (seconds > 0) all.emplace_back(field->name(), seconds);
  }
  return all;
}

double total_seconds(const v1::Goodput& goodput) {
  double total = goodput.productive();
  for (const auto& [cause, seconds] : lost_seconds(goodput)) total += seconds;
  return total;
}

double productive_share(const v1::Goodput& goodput) {
  const double total = total_seconds(goodput);
  return total > 0 ? goodput.productive() / total : 0.0;
}

std::string goodput_text(const v1::Goodput& goodput) {
  constexpr double kShown = 0.01;
  const double total = total_seconds(goodput);
  if (total <= 0) return "";
  std::vector<std::pair<double, std::string>> lost;
  for (const auto& [cause, seconds] : lost_seconds(goodput))
    if (seconds >= kShown) lost.emplace_back(-seconds, cause);
  std::sort(lost.begin(), lost.end());
  std::string text = fmt::format("{:.1f} % of {:.1f} s", 100 * productive_share(goodput), total);
  for (std::size_t i = 0; i < lost.size(); ++i)
    text += fmt::format("{} {} {:.2f} s", i == 0 ? "; lost:" : ",", lost[i].second, -lost[i].first);
  return text;
}

}  // namespace meshloom::base
