// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/style_json.h"

#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

using planner::ArgumentLayout;
using planner::ArgumentLayouts;

/// One argument: null, "S(0)", or one placement per mesh dim.
ArgumentLayout read_layout(const Json& value, const planner::MeshLayout& mesh,
                           const std::string& where) {
  if (value.is_null()) return std::nullopt;
  planner::Placements placements;
  if (value.is_array()) {
    for (const Json& item : value) {
      check(item.is_string(), "{}: expected a placement, not {}", where, item.dump());
      placements.push_back(planner::parse_placement(item.get<std::string>()));
    }
    return placements;
  }
  check(value.is_string(), "{}: expected a placement, a list or null, not {}", where, value.dump());
  placements.assign(static_cast<std::size_t>(mesh.ndim()),
                    planner::parse_placement(value.get<std::string>()));
  return placements;
}

std::optional<ArgumentLayouts> read_layouts(ObjectReader& reader, const char* key,
                                            const planner::MeshLayout& mesh) {
  if (!reader.has(key)) return std::nullopt;
  const Json& value = reader.value(key);
  ArgumentLayouts layouts;
  if (!value.is_array()) return ArgumentLayouts{read_layout(value, mesh, key)};
  for (const Json& item : value) layouts.push_back(read_layout(item, mesh, key));
  return layouts;
}

std::map<std::string, ArgumentLayout> read_named(ObjectReader& reader, const char* key,
                                                 const planner::MeshLayout& mesh) {
  std::map<std::string, ArgumentLayout> layouts;
  if (!reader.has(key)) return layouts;
  const Json& value = reader.value(key);
  check(value.is_object(), "{}: expected a map, not {}", key, value.dump());
  for (const auto& [name, layout] : value.items()) layouts[name] = read_layout(layout, mesh, key);
  return layouts;
}

planner::ParallelStyle read_style(const Json& value, const planner::MeshLayout& mesh,
                                  const std::string& where) {
  planner::ParallelStyle style;
  if (value.is_string()) {
    style.kind = planner::style_from_name(value.get<std::string>());
    return style;
  }
  ObjectReader reader(value, where);
  style.kind = planner::style_from_name(reader.string("style"));
  style.input_layouts = read_layouts(reader, "input_layouts", mesh);
  style.desired_input_layouts = read_layouts(reader, "desired_input_layouts", mesh);
  style.input_kwarg_layouts = read_named(reader, "input_kwarg_layouts", mesh);
  style.desired_input_kwarg_layouts = read_named(reader, "desired_input_kwarg_layouts", mesh);
  style.output_layouts = read_layouts(reader, "output_layouts", mesh);
  style.desired_output_layouts = read_layouts(reader, "desired_output_layouts", mesh);
  if (reader.has("use_local_input")) style.use_local_input = reader.boolean("use_local_input");
  if (reader.has("use_local_output")) style.use_local_output = reader.boolean("use_local_output");
  style.sequence_dim = reader.integer_or("sequence_dim", 1);
  reader.finish();
  return style;
}

}  // namespace

planner::StylePlan read_style_plan(const Json& plan, const planner::MeshLayout& mesh) {
  check(plan.is_object(), "plan: expected a map of name pattern to style, not {}", plan.dump());
  planner::StylePlan result;
  for (const auto& [pattern, value] : plan.items()) {
    const std::string where = fmt::format("plan[\"{}\"]", pattern);
    planner::PatternStyles entry{pattern, {}};
    if (value.is_array())
      for (const Json& item : value) entry.styles.push_back(read_style(item, mesh, where));
    else
      entry.styles.push_back(read_style(value, mesh, where));
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace meshloom::conformance
