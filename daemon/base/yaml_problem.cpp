// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/yaml_problem.h"

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <string_view>

#include "daemon/base/utf8.h"

namespace meshloom::base {
namespace {

struct Meaning {
  const char* message;  ///< with which the parser's text begins
  const char* text;
};

constexpr const char* kIndented =
    "a line is indented otherwise than those it belongs to, or a key has no \": \" behind it";
constexpr const char* kQuoted = "a value that begins with * or & must stand in quotes";
constexpr const char* kTag = "a value that begins with ! must stand in quotes";
constexpr const char* kDirective = "a line that begins with % must stand in quotes";
constexpr const char* kItem =
    "a list item (\"- \") stands where none may: each stands on a line of its own below its key";

const Meaning kMeanings[] = {
    {YAML::ErrorMsg::END_OF_MAP_FLOW, "a { is not closed by }"},
    {YAML::ErrorMsg::END_OF_SEQ_FLOW, "a [ is not closed by ]"},
    {YAML::ErrorMsg::END_OF_MAP, kIndented},
    {YAML::ErrorMsg::END_OF_SEQ, kIndented},
    {YAML::ErrorMsg::EOF_IN_SCALAR, "a quote is not closed"},
    {YAML::ErrorMsg::SINGLE_QUOTED_CHAR, "a quote is not closed"},
    {YAML::ErrorMsg::DOC_IN_SCALAR, "a quote is not closed"},
    {YAML::ErrorMsg::INVALID_ESCAPE,
     "in double quotes a backslash begins an escape; use single quotes, or two backslashes"},
    {YAML::ErrorMsg::INVALID_HEX, "an escape in double quotes needs hexadecimal digits"},
    {YAML::ErrorMsg::INVALID_UNICODE, "an escape in double quotes is no Unicode character"},
    {YAML::ErrorMsg::MAP_VALUE,
     "a second \": \" stands in a value, or a line is indented deeper than the one above it: put "
     "the value in quotes, or line the keys up"},
    {YAML::ErrorMsg::MAP_KEY, "a key stands where none may: line the keys up"},
    {YAML::ErrorMsg::BLOCK_ENTRY, kItem},
    {YAML::ErrorMsg::FLOW_END, "a ] or } closes nothing"},
    {YAML::ErrorMsg::UNKNOWN_TOKEN,
     "a value begins with a character that YAML keeps for itself (@, `): put it in quotes"},
    {YAML::ErrorMsg::ALIAS_NOT_FOUND, kQuoted},
    {YAML::ErrorMsg::ANCHOR_NOT_FOUND, kQuoted},
    {YAML::ErrorMsg::CHAR_IN_ALIAS, kQuoted},
    {YAML::ErrorMsg::CHAR_IN_ANCHOR, kQuoted},
    {YAML::ErrorMsg::ALIAS_CONTENT, kQuoted},
    {YAML::ErrorMsg::UNKNOWN_ANCHOR, kQuoted},
    {YAML::ErrorMsg::MULTIPLE_ANCHORS, kQuoted},
    {YAML::ErrorMsg::MULTIPLE_ALIASES, kQuoted},
    {YAML::ErrorMsg::CHAR_IN_TAG_HANDLE, kTag},
    {YAML::ErrorMsg::TAG_WITH_NO_SUFFIX, kTag},
    {YAML::ErrorMsg::END_OF_VERBATIM_TAG, kTag},
    {YAML::ErrorMsg::MULTIPLE_TAGS, kTag},
    {YAML::ErrorMsg::YAML_DIRECTIVE_ARGS, kDirective},
    {YAML::ErrorMsg::YAML_VERSION, kDirective},
    {YAML::ErrorMsg::YAML_MAJOR_VERSION, kDirective},
    {YAML::ErrorMsg::TAG_DIRECTIVE_ARGS, kDirective},
    {YAML::ErrorMsg::REPEATED_YAML_DIRECTIVE, kDirective},
    {YAML::ErrorMsg::REPEATED_TAG_DIRECTIVE, kDirective},
    {YAML::ErrorMsg::TAB_IN_INDENTATION, "a line is indented by a tab; YAML is by spaces"},
    {YAML::ErrorMsg::CHAR_IN_BLOCK, "only a comment may stand behind | or >"},
    {YAML::ErrorMsg::ZERO_INDENT_IN_BLOCK, "a text below | or > is indented by at least a space"},
};

std::string meaning_of(const YAML::Exception& error) {
  if (dynamic_cast<const YAML::DeepRecursion*>(&error)) return "it is nested too deep";
  for (const Meaning& known : kMeanings)
    if (error.msg.starts_with(known.message)) return known.text;
  return "this line cannot be read";
}

/// Without the blanks around it; empty where there is none.
std::string line_at(const std::string& text, int number) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i <= number; ++i)
    if (!std::getline(lines, line)) return "";
  const auto begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  constexpr std::size_t kShown = 60;
  return printable_text(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin), kShown);
}

}  // namespace

std::string yaml_problem(const YAML::Exception& error, const std::string& text) {
  const std::string line = error.mark.is_null() ? "" : line_at(text, error.mark.line);
  return meaning_of(error) + (line.empty() ? "" : fmt::format(": \"{}\"", line));
}

}  // namespace meshloom::base
