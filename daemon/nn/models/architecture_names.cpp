// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/architecture_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/nn/models/architectures/architecture.h"

namespace meshloom::nn {
namespace {

template <typename Wanted>
const ArchitectureName* find(const Wanted& wanted) {
  for (const ModelArchitecture* architecture : architectures())
    for (const ArchitectureName& name : architecture->names())
      if (wanted(name)) return &name;
  return nullptr;
}

}  // namespace

const ArchitectureName& architecture_name(const ModelConfig& config) {
  const std::span<const ArchitectureName> names = architecture_of(config.architecture).names();
  const auto found = std::find_if(names.begin(), names.end(), [&](const ArchitectureName& name) {
    return name.family == config.family;
  });
  return found == names.end() ? names.front() : *found;
}

const ArchitectureName* find_model_type(const std::string& name) {
  return find([&](const ArchitectureName& known) { return name == known.model_type; });
}

const ArchitectureName* find_class_name(const std::string& name) {
  return find([&](const ArchitectureName& known) { return name == known.class_name; });
}

const ArchitectureName* find_headless_class(const std::string& name) {
  return find([&](const ArchitectureName& known) {
    return known.headless_class != nullptr && name == known.headless_class;
  });
}

bool is_headless(const std::string& config_text) {
  const auto config = nlohmann::json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json classes =
      config.is_object() ? config.value("architectures", nlohmann::json()) : nlohmann::json();
  return classes.is_array() && classes.size() == 1 && classes[0].is_string() &&
         find_headless_class(classes[0].get<std::string>()) != nullptr;
}

std::string offered_classes() {
  std::vector<std::string> names;
  for (const ModelArchitecture* architecture : architectures())
    for (const ArchitectureName& known : architecture->names())
      names.emplace_back(known.class_name);
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {} are supported", fmt::join(names, ", "), last);
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const ModelArchitecture* architecture : architectures())
    for (const ArchitectureName& known : architecture->names())
      names.emplace_back(known.model_type);
  return names;
}

}  // namespace meshloom::nn
