// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/symbols.h"

#include "kernels/base/error.h"

namespace meshloom::text::chat {

bool Symbols::is_known(const std::string& name) const {
  return slots_.contains(name) || (parent_ != nullptr && parent_->is_known(name));
}

void Symbols::define(const std::string& name, Beginning beginning) {
  slots_.emplace(name, static_cast<int>(slots_.size()));
  beginnings_[name] = beginning;
}

void Symbols::load(const std::string& name) {
  if (!is_known(name)) define(name, Beginning::kContext);
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (slots_.contains(name)) return;
  const bool is_outer = parent_ != nullptr && parent_->is_known(name);
  define(name, is_outer ? Beginning::kOuter : Beginning::kNothing);
}

void Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  define(name, Beginning::kParameter);
}

void Symbols::join(const std::vector<Symbols>& branches) {
  std::set<std::string> stored;
  for (const Symbols& branch : branches)
    for (const std::string& name : branch.stores_)
      if (!stores_.contains(name)) stored.insert(name);
  for (const Symbols& branch : branches) {
    for (const auto& [name, beginning] : branch.beginnings_) define(name, beginning);
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  // Where the branch that assigns to a name did not run, the name is what it was before.
  for (const std::string& name : stored) {
    const bool is_outer = parent_ != nullptr && parent_->is_known(name);
    define(name, is_outer ? Beginning::kOuter : Beginning::kContext);
  }
}

Variable Symbols::variable(const std::string& name) const {
  int frames = 0;
  for (const Symbols* part = this; part != nullptr; part = part->parent_, ++frames)
    if (const auto found = part->slots_.find(name); found != part->slots_.end())
      return {frames, found->second};
  throw InternalError("the name " + name + " of a chat template was read and is not known");
}

Scope Symbols::scope() const {
  Scope scope{static_cast<int>(slots_.size()), {}};
  for (const auto& [name, beginning] : beginnings_) {
    if (beginning == Beginning::kContext)
      scope.loads.push_back({Load::From::kContext, slots_.at(name), {}, name});
    if (beginning == Beginning::kOuter) {
      Variable outer = parent_->variable(name);
      ++outer.frames;
      scope.loads.push_back({Load::From::kOuter, slots_.at(name), outer, name});
    }
  }
  return scope;
}

}  // namespace meshloom::text::chat
