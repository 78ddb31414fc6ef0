// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/style.h"

#include <array>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

constexpr std::array kKinds = {StyleKind::kColwise,       StyleKind::kRowwise,
                               StyleKind::kSequence,      StyleKind::kPrepareInput,
                               StyleKind::kPrepareOutput, StyleKind::kPrepareInputOutput};

std::string layout_text(const ArgumentLayout& layout) {
  if (!layout) return "None";
  return layout->size() == 1 ? to_string(layout->front()) : to_string(*layout);
}

void append(std::vector<std::string>& parts, const char* name,
            const std::optional<ArgumentLayouts>& layouts) {
  if (!layouts) return;
  std::vector<std::string> texts;
  for (const ArgumentLayout& layout : *layouts) texts.push_back(layout_text(layout));
  parts.push_back(fmt::format("{} {}", name, fmt::join(texts, ", ")));
}

void append(std::vector<std::string>& parts, const char* name,
            const std::map<std::string, ArgumentLayout>& layouts) {
  for (const auto& [argument, layout] : layouts)
    parts.push_back(fmt::format("{} {}={}", name, argument, layout_text(layout)));
}

}  // namespace

const char* style_name(StyleKind kind) {
  switch (kind) {
    case StyleKind::kColwise: return "ColwiseParallel";
    case StyleKind::kRowwise: return "RowwiseParallel";
    case StyleKind::kSequence: return "SequenceParallel";
    case StyleKind::kPrepareInput: return "PrepareModuleInput";
    case StyleKind::kPrepareOutput: return "PrepareModuleOutput";
    case StyleKind::kPrepareInputOutput: return "PrepareModuleInputOutput";
  }
  return "unknown style";
}

StyleKind style_from_name(const std::string& name) {
  std::vector<std::string> known;
  for (const StyleKind kind : kKinds) {
    if (name == style_name(kind)) return kind;
    known.emplace_back(style_name(kind));
  }
  throw InvalidArgument(
      fmt::format("unknown style {}, expected one of {}", name, fmt::join(known, ", ")));
}

std::string to_string(const ParallelStyle& style) {
  std::vector<std::string> parts;
  append(parts, "input", style.input_layouts);
  append(parts, "desired input", style.desired_input_layouts);
  append(parts, "input", style.input_kwarg_layouts);
  append(parts, "desired input", style.desired_input_kwarg_layouts);
  append(parts, "output", style.output_layouts);
  append(parts, "desired output", style.desired_output_layouts);
  if (style.use_local_input) parts.push_back(fmt::format("local input {}", *style.use_local_input));
  if (style.use_local_output)
    parts.push_back(fmt::format("local output {}", *style.use_local_output));
  if (style.kind == StyleKind::kSequence)
    parts.push_back(fmt::format("dim {}", style.sequence_dim));
  if (parts.empty()) return style_name(style.kind);
  return fmt::format("{}({})", style_name(style.kind), fmt::join(parts, "; "));
}

}  // namespace meshloom::planner
