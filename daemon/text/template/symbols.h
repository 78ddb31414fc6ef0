// SPDX-License-Identifier: Apache-2.0
// Symbols: the names of one part of a template, as its text is read from top to bottom.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/text/template/syntax.h"

namespace meshloom::text::chat {

/// A slot begins with this.
enum class Beginning {
  kParameter,  ///< whoever enters the part fills it
  kContext,    ///< what the template is given under the name, or a function
  kOuter,      ///< what the part around it holds under the name
  kNothing,    ///< nothing, until it is assigned to
};

class Symbols {
 public:
  explicit Symbols(const Symbols* parent) : parent_(parent) {}

  /// The name is read: unless it is known, it is what the template was given.
  void load(const std::string& name);
  /// The name is assigned to: it is this part's own from its beginning.
  void store(const std::string& name);
  void declare_parameter(const std::string& name);
  /// Takes over what was read in branches, of which only one runs. Each began as a copy of these.
  void join(const std::vector<Symbols>& branches);

  /// Returns where a name that was read is held.
  Variable variable(const std::string& name) const;
  Scope scope() const;
  std::size_t size() const { return slots_.size(); }

 private:
  bool is_known(const std::string& name) const;
  void define(const std::string& name, Beginning beginning);

  const Symbols* parent_;
  std::map<std::string, int> slots_;
  std::map<std::string, Beginning> beginnings_;
  std::set<std::string> stores_;
};

}  // namespace meshloom::text::chat
