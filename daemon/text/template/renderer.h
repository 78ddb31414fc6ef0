// SPDX-License-Identifier: Apache-2.0
// Renderer: one run of a template.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "daemon/text/template/arguments.h"
#include "daemon/text/template/loop.h"
#include "daemon/text/template/syntax.h"
#include "daemon/text/template/value.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {

using FramePtr = std::shared_ptr<Frame>;

/// Statements put their text into a sink.
struct Sink {
  std::string text;
  /// Byte ranges of blocks of {% generation %}.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

class Renderer {
 public:
  /// `variables` is an object. All of them outlive the renderer.
  Renderer(Work& work, const Syntax& syntax, const nlohmann::ordered_json& variables)
      : work_(work), syntax_(syntax), variables_(variables) {}
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  Sink render();

 private:
  /// The flow says what happens behind a statement.
  enum class Flow { kNext, kBreak, kContinue };

  // --- renderer.cpp: statements
  Flow execute(const Block& block, const FramePtr& frame, Sink& sink);
  Flow run(const Data& node, const FramePtr& frame, Sink& sink);
  Flow run(const Output& node, const FramePtr& frame, Sink& sink);
  Flow run(const If& node, const FramePtr& frame, Sink& sink);
  Flow run(const For& node, const FramePtr& frame, Sink& sink);
  Flow run(const Set& node, const FramePtr& frame, Sink& sink);
  Flow run(const SetBlock& node, const FramePtr& frame, Sink& sink);
  Flow run(const With& node, const FramePtr& frame, Sink& sink);
  Flow run(const FilterBlock& node, const FramePtr& frame, Sink& sink);
  Flow run(const MacroStatement& node, const FramePtr& frame, Sink& sink);
  Flow run(const CallBlock& node, const FramePtr& frame, Sink& sink);
  Flow run(const Generation& node, const FramePtr& frame, Sink& sink);
  Flow run(const Break& node, const FramePtr& frame, Sink& sink);
  Flow run(const Continue& node, const FramePtr& frame, Sink& sink);

  // --- loops.cpp
  Flow run_loop(const For& node, const FramePtr& frame, Sink& sink, const Value& iterable,
                int depth0);
  std::shared_ptr<Loop> new_loop(const For& node, const FramePtr& frame, const Value& iterable,
                                 int depth0);
  Next passing(const For& node, const FramePtr& frame, Next next);

  // --- frames.cpp: names
  FramePtr enter(const Scope& scope, const FramePtr& outer);
  void load(const Scope& scope, Frame& frame);
  Value context_value(const std::string& name);
  static Value& slot(const Variable& variable, Frame& frame);
  void assign(const Target& target, const Value& value, Frame& frame);
  void check_namespaces(const Target& target, Frame& frame);
  Value new_macro(const MacroDefinition& definition, const FramePtr& frame);
  void keep(const FramePtr& frame);

  // --- calls.cpp
  Arguments evaluate_arguments(const CallArguments& arguments, const FramePtr& frame);
  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const Macro& macro, Arguments arguments);
  void bind(const Macro& macro, Arguments& arguments, const FramePtr& frame);
  void bind_others(const Macro& macro, Arguments& arguments, Frame& frame, bool found_caller);

  // --- evaluation.cpp: expressions
  Value evaluate(const Expression& expression, const FramePtr& frame);
  Value value_of(const Constant& node, const FramePtr& frame);
  Value value_of(const Name& node, const FramePtr& frame);
  Value value_of(const SequenceLiteral& node, const FramePtr& frame);
  Value value_of(const DictLiteral& node, const FramePtr& frame);
  Value value_of(const Unary& node, const FramePtr& frame);
  Value value_of(const Binary& node, const FramePtr& frame);
  Value value_of(const Logical& node, const FramePtr& frame);
  Value value_of(const Concatenation& node, const FramePtr& frame);
  Value value_of(const Comparison& node, const FramePtr& frame);
  Value value_of(const Conditional& node, const FramePtr& frame);
  Value value_of(const Attribute& node, const FramePtr& frame);
  Value value_of(const Item& node, const FramePtr& frame);
  Value value_of(const Slice& node, const FramePtr& frame);
  Value value_of(const Call& node, const FramePtr& frame);
  Value value_of(const FilterCall& node, const FramePtr& frame);
  Value value_of(const TestCall& node, const FramePtr& frame);
  bool related(Relation relation, const Value& a, const Value& b);
  /// Returns the value of a filter of a block whose text is given.
  Value filtered(const Expression& filter, const FramePtr& frame, Value text);

  Work& work_;
  const Syntax& syntax_;
  const nlohmann::ordered_json& variables_;
  /// These are the variables that were read so far.
  std::map<std::string, Value, std::less<>> context_;
  /// The text of the block whose filters are evaluated.
  Value block_text_;
  /// Frames and namespaces may hold each other: they live as long as the renderer and are emptied
  /// by it.
  std::vector<FramePtr> kept_frames_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace meshloom::text::chat
