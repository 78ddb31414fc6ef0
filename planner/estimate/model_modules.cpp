// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_modules.h"

#include <algorithm>
#include <cctype>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

/// "transformer.h" of "transformer.h.0"; "" if that is no block's name.
std::string prefix_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return "";
  const bool number = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                                  [](unsigned char c) { return std::isdigit(c) != 0; });
  return number ? name.substr(0, dot) : "";
}

bool alike(const ModuleShape& a, const ModuleShape& b) {
  return a.name == b.name &&
         std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const ParameterShape& p, const ParameterShape& q) {
                      return p.name == q.name && p.shape == q.shape;
                    });
}

/// Cuts "PREFIX.LAYER" and the dot behind it off.
void cut(std::string& name, const std::string& block) {
  name.erase(0, std::min(name.size(), block.size() + 1));
}

template <typename Take>
void for_each(const ModelModules& all, const Take& take) {
  for (const ModuleShape& module : all.before) take(module, std::int64_t{-1});
  for (std::int64_t layer = 0; layer < all.layers; ++layer)
    for (const ModuleShape& module : all.block) take(module, layer);
  for (const ModuleShape& module : all.after) take(module, std::int64_t{-1});
}

}  // namespace

bool ModelModules::is_block(int module) const {
  const auto first = static_cast<int>(before.size());
  return module >= first && module < first + static_cast<int>(block.size());
}

const ModuleShape& ModelModules::at(int module) const {
  auto i = static_cast<std::size_t>(module);
  for (const auto* list : {&before, &block}) {
    if (i < list->size()) return (*list)[i];
    i -= list->size();
  }
  return after[i];
}

ModelModules sort_modules(std::vector<ModuleShape> modules) {
  ModelModules all;
  std::vector<ModuleShape> block;
  std::string name;  // of the block that is read
  const auto close = [&] {
    if (name.empty()) return;
    if (all.layers++ == 0) {
      all.block = std::move(block);
    } else if (!std::equal(block.begin(), block.end(), all.block.begin(), all.block.end(), alike)) {
      throw Unimplemented(fmt::format("{} has other modules than {}.0, which is not estimated",
                                      name, all.block_prefix));
    }
    block.clear();
    name.clear();
  };
  for (ModuleShape& module : modules) {
    if (!name.empty() && module.name.starts_with(name + ".")) {
      cut(module.name, name);
      block.push_back(std::move(module));
      continue;
    }
    close();
    const std::string prefix = prefix_of(module.name);
    if (!prefix.empty() && (all.block_prefix.empty() || prefix == all.block_prefix)) {
      all.block_prefix = prefix;
      name = std::exchange(module.name, "");
      block.push_back(std::move(module));
    } else {
      (all.layers == 0 ? all.before : all.after).push_back(std::move(module));
    }
  }
  close();
  check(all.layers > 0, "a model of {} modules has no blocks", modules.size());
  return all;
}

std::string full_name(const ModelModules& modules, const std::string& module, std::int64_t layer) {
  if (layer < 0) return module;
  const std::string block = fmt::format("{}.{}", modules.block_prefix, layer);
  return module.empty() ? block : block + "." + module;
}

std::vector<std::string> module_names(const ModelModules& modules) {
  std::vector<std::string> names = {""};
  for_each(modules, [&](const ModuleShape& module, std::int64_t layer) {
    names.push_back(full_name(modules, module.name, layer));
  });
  return names;
}

std::vector<std::string> parameter_names(const ModelModules& modules) {
  std::vector<std::string> names;
  for_each(modules, [&](const ModuleShape& module, std::int64_t layer) {
    for (const ParameterShape& p : module.parameters)
      names.push_back(full_name(modules, module.name, layer) + "." + p.name);
  });
  return names;
}

std::int64_t parameter_count(const ModelModules& modules) {
  const auto count = [](const std::vector<ModuleShape>& list) {
    std::int64_t sum = 0;
    for (const ModuleShape& module : list)
      for (const ParameterShape& p : module.parameters) sum += numel(p.shape);
    return sum;
  };
  return count(modules.before) + modules.layers * count(modules.block) + count(modules.after);
}

}  // namespace meshloom::planner
