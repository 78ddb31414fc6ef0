// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/name_resolution.h"

#include "daemon/text/template/expression_walk.h"
#include "daemon/text/template/symbols.h"

namespace meshloom::text::chat {
namespace {

/// Names of a part are first read, all of them, and then given their places: a name that is
/// assigned to below is another one above, too.
class NameResolver {
 public:
  explicit NameResolver(const SourceText& source) : source_(source) {}

  void resolve(Syntax& syntax) {
    Symbols symbols(nullptr);
    read(syntax.body, symbols);
    place(syntax.body, symbols);
    syntax.scope = symbols.scope();
  }

 private:
  // --- Reading the names of one part. Parts in it are left out, but for what they take from it.

  void read(Block& block, Symbols& symbols) {
    for (Statement& statement : block)
      std::visit([&](auto& node) { read(node, symbols); }, statement.node);
  }
  static void read(const ExpressionPtr& expression, Symbols& symbols) {
    if (expression == nullptr) return;
    for_each_name(*expression, [&](Name& name) { symbols.load(name.name); });
  }
  static void read(Target& target, Symbols& symbols) {
    for_each_target(
        target, [&](Name& name) { symbols.store(name.name); },
        [&](NamespaceAttribute& attribute) { symbols.load(attribute.name.name); });
  }
  static void declare(Target& target, Symbols& symbols) {
    for_each_target(
        target, [&](Name& name) { symbols.declare_parameter(name.name); },
        [](NamespaceAttribute&) {});
  }

  static void read(Data&, Symbols&) {}
  static void read(Break&, Symbols&) {}
  static void read(Continue&, Symbols&) {}
  static void read(Generation&, Symbols&) {}
  static void read(Output& output, Symbols& symbols) {
    for (const ExpressionPtr& value : output.values) read(value, symbols);
  }
  void read(If& node, Symbols& symbols) {
    read(node.branches[0].first, symbols);
    std::vector<Symbols> branches(3, copy(symbols));
    read(node.branches[0].second, branches[0]);
    for (std::size_t i = 1; i < node.branches.size(); ++i) {
      read(node.branches[i].first, branches[1]);
      std::vector<Symbols> inner(1, copy(branches[1]));
      read(node.branches[i].second, inner[0]);
      branches[1].join(inner);
    }
    read(node.otherwise, branches[2]);
    symbols.join(branches);
  }
  static void read(For& loop, Symbols& symbols) { read(loop.iterable, symbols); }
  static void read(Set& set, Symbols& symbols) {
    read(set.value, symbols);
    read(set.target, symbols);
  }
  static void read(SetBlock& set, Symbols& symbols) { read(set.target, symbols); }
  static void read(With& with, Symbols& symbols) {
    for (auto& [target, value] : with.assignments) read(value, symbols);
  }
  static void read(FilterBlock& block, Symbols& symbols) { read(block.filter, symbols); }
  static void read(MacroStatement& macro, Symbols& symbols) { symbols.store(macro.name.name); }
  static void read(CallBlock& block, Symbols& symbols) { read(block.call, symbols); }

  /// Branches copy what was read so far: many branches of many names would take long.
  const Symbols& copy(const Symbols& symbols) {
    copied_ += symbols.size() + 1;
    if (copied_ > kMostCopied) source_.too_large(1, "the template has too many names and branches");
    return symbols;
  }

  // --- Giving the names of a part their places, and those of the parts in it.

  void place(Block& block, const Symbols& symbols) {
    for (Statement& statement : block) {
      line_ = statement.line;
      std::visit([&](auto& node) { place(node, symbols); }, statement.node);
    }
  }
  static void place(const ExpressionPtr& expression, const Symbols& symbols) {
    if (expression == nullptr) return;
    for_each_name(*expression, [&](Name& name) { name.variable = symbols.variable(name.name); });
  }
  void place(Target& target, const Symbols& symbols) {
    for_each_target(
        target,
        [&](Name& name) {
          if (loops_ > 0 && name.name == "loop")
            source_.refuse(line_, "can't assign to the variable loop in a loop");
          name.variable = symbols.variable(name.name);
        },
        [&](NamespaceAttribute& attribute) {
          attribute.name.variable = symbols.variable(attribute.name.name);
        });
  }

  static void place(Data&, const Symbols&) {}
  static void place(Break&, const Symbols&) {}
  static void place(Continue&, const Symbols&) {}
  static void place(Output& output, const Symbols& symbols) {
    for (const ExpressionPtr& value : output.values) place(value, symbols);
  }
  void place(If& node, const Symbols& symbols) {
    for (auto& [test, body] : node.branches) {
      place(test, symbols);
      place(body, symbols);
    }
    place(node.otherwise, symbols);
  }
  void place(Set& set, const Symbols& symbols) {
    place(set.value, symbols);
    place(set.target, symbols);
  }
  void place(For& loop, const Symbols& outer) {
    place(loop.iterable, outer);
    ++loops_;
    Symbols inner(&outer);
    inner.declare_parameter("loop");
    declare(loop.target, inner);
    read(loop.body, inner);
    place(loop.target, inner);
    loop.loop = inner.variable("loop");
    place(loop.body, inner);
    loop.scope = inner.scope();
    place_test(loop, outer);
    Symbols otherwise(&outer);
    read(loop.otherwise, otherwise);
    place(loop.otherwise, otherwise);
    loop.otherwise_scope = otherwise.scope();
    --loops_;
  }
  void place_test(For& loop, const Symbols& outer) {
    if (loop.test == nullptr) return;
    Symbols symbols(&outer);
    loop.test_target = loop.target;
    declare(loop.test_target, symbols);
    read(loop.test, symbols);
    place(loop.test_target, symbols);
    place(loop.test, symbols);
    loop.test_scope = symbols.scope();
  }
  void place(SetBlock& set, const Symbols& outer) {
    place(set.target, outer);
    place_filtered(set, outer);
  }
  void place(FilterBlock& block, const Symbols& outer) { place_filtered(block, outer); }
  /// Of a block whose text goes through filters.
  template <typename Block>
  void place_filtered(Block& block, const Symbols& outer) {
    Symbols symbols(&outer);
    read(block.body, symbols);
    read(block.filter, symbols);
    place(block.body, symbols);
    place(block.filter, symbols);
    block.scope = symbols.scope();
  }
  void place(With& with, const Symbols& outer) {
    Symbols symbols(&outer);
    for (auto& [target, value] : with.assignments) {
      place(value, outer);
      declare(target, symbols);
    }
    read(with.body, symbols);
    for (auto& [target, value] : with.assignments) place(target, symbols);
    place(with.body, symbols);
    with.scope = symbols.scope();
  }
  void place(MacroStatement& macro, const Symbols& outer) {
    macro.name.variable = outer.variable(macro.name.name);
    place(*macro.definition, outer);
  }
  void place(CallBlock& block, const Symbols& outer) {
    place(block.call, outer);
    place(*block.definition, outer);
  }
  void place(Generation& generation, const Symbols& outer) { place(*generation.definition, outer); }

  void place(MacroDefinition& macro, const Symbols& outer) {
    Symbols symbols(&outer);
    for (const Parameter& parameter : macro.parameters) {
      symbols.declare_parameter(parameter.name);
      macro.has_caller_parameter = macro.has_caller_parameter || parameter.name == "caller";
    }
    // These stand for other arguments unless parameters have their names.
    std::set<std::string> others;
    for_each_name(macro.body, [&](Name& name) {
      if (name.name == "caller" || name.name == "kwargs" || name.name == "varargs")
        others.insert(name.name);
    });
    for (const Parameter& parameter : macro.parameters) others.erase(parameter.name);
    for (const std::string& name : others) symbols.declare_parameter(name);
    for (const Parameter& parameter : macro.parameters) read(parameter.otherwise, symbols);
    read(macro.body, symbols);
    for (Parameter& parameter : macro.parameters) {
      parameter.variable = symbols.variable(parameter.name);
      place(parameter.otherwise, symbols);
    }
    place(macro.body, symbols);
    const auto other = [&](const char* name) {
      return others.contains(name) ? std::optional(symbols.variable(name)) : std::nullopt;
    };
    macro.caller = other("caller");
    macro.kwargs = other("kwargs");
    macro.varargs = other("varargs");
    macro.scope = symbols.scope();
  }

  static constexpr std::size_t kMostCopied = 1'000'000;

  const SourceText& source_;
  int line_ = 1;
  int loops_ = 0;
  std::size_t copied_ = 0;
};

}  // namespace

void resolve_names(const SourceText& source, Syntax& syntax) {
  NameResolver(source).resolve(syntax);
}

}  // namespace meshloom::text::chat
