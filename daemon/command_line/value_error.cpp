// SPDX-License-Identifier: Apache-2.0
#include "daemon/command_line/value_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "daemon/base/nearest_name.h"
#include "daemon/command_line/command_list.h"

namespace meshloom::command_line {
namespace {

void add_options_of(const CLI::App& app, std::vector<const CLI::Option*>* all) {
  const auto own = app.get_options();
  all->insert(all->end(), own.begin(), own.end());
  for (const CLI::App* group : app.get_subcommands(is_group)) add_options_of(*group, all);
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/// Where the name stands in the text as a whole word; npos if it does not.
std::size_t find_word(const std::string& text, const std::string& name) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !is_name_character(text[at - 1])) &&
        (end == text.size() || !is_name_character(text[end])))
      return at;
  }
  return std::string::npos;
}

/// The option that a text of the parser library is about: the one it names first.
const CLI::Option* option_in(const CLI::App& command, const std::string& text) {
  const CLI::Option* found = nullptr;
  std::size_t first = std::string::npos;
  for (const CLI::Option* option : options_of(command)) {
    const std::size_t at = find_word(text, option->get_name());
    if (at < first) {
      first = at;
      found = option;
    }
  }
  return found;
}

/// What an option takes, by its type and its checks as its help shows them: "INT:INT in [1 - 64]",
/// "TEXT:{auto,always,never}".
struct Expectation {
  bool whole = false, not_negative = false, number = false, flag = false;
  std::vector<std::string> names;  ///< of a set
  std::string range;               ///< "1 to 64"
  double least = 0, most = 0;      ///< of a range

  std::string text() const;
  bool fits(const std::string& value) const;
};

std::vector<std::string> names_in(const std::string& type) {
  const std::size_t begin = type.find(":{"), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 2, end - begin - 2), ',');
}

void read_range(const std::string& type, Expectation* expected) {
  const std::size_t begin = type.find(" in ["), between = type.find(" - ", begin),
                    end = type.find(']', begin);
  if (begin == std::string::npos || between == std::string::npos || end < between) return;
  const std::string least = type.substr(begin + 5, between - begin - 5);
  const std::string most = type.substr(between + 3, end - between - 3);
  if (!CLI::detail::lexical_cast(least, expected->least) ||
      !CLI::detail::lexical_cast(most, expected->most))
    return;
  expected->range = fmt::format("{} to {}", least, most);
}

Expectation expectation_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  Expectation expected;
  expected.flag = option.get_items_expected_max() == 0;
  expected.not_negative = type.rfind("UINT", 0) == 0;
  expected.whole = expected.not_negative || type.rfind("INT", 0) == 0;
  expected.number = expected.whole || type.rfind("FLOAT", 0) == 0;
  expected.names = names_in(type);
  read_range(type, &expected);
  return expected;
}

std::string Expectation::text() const {
  if (!names.empty()) {
    std::string list;
    for (std::size_t i = 0; i < names.size(); ++i)
      list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    return list;
  }
  const char* kind = whole ? "a whole number" : number ? "a number" : "";
  if (!range.empty()) return fmt::format("{}{}{}", kind, *kind ? ", " : "", range);
  if (flag) return "no value, true or false";
  return kind + std::string(not_negative ? ", 0 or more" : "");
}

bool Expectation::fits(const std::string& value) const {
  if (!names.empty()) return std::find(names.begin(), names.end(), value) != names.end();
  double number_seen = 0;
  std::int64_t whole_seen = 0;
  const bool is_number = CLI::detail::lexical_cast(value, number_seen);
  if (!range.empty() && (!is_number || number_seen < least || number_seen > most)) return false;
  if (whole)
    return CLI::detail::lexical_cast(value, whole_seen) && (!not_negative || whole_seen >= 0);
  return !number || is_number;
}

std::string wrong_value(const CLI::Option& option) {
  const Expectation expected = expectation_of(option);
  const std::string text = expected.text();
  if (text.empty() || option.results().empty()) return "";
  // Of a list the first wrong one; where all are of the right kind, one has too many digits.
  std::string seen = option.results().back();
  for (const std::string& value : option.results()) {
    if (expected.fits(value)) continue;
    seen = value;
    break;
  }
  const bool digits_alone =
      !seen.empty() && seen.find_first_not_of("0123456789") == std::string::npos;
  if (expected.whole && expected.range.empty() && digits_alone)
    return fmt::format("{}: is {}, expected a smaller whole number", option.get_name(), seen);
  return fmt::format("{}: is {}, expected {}{}", option.get_name(), seen, text,
                     base::nearest_hint(seen, expected.names));
}

/// One that has no value where it needs one, or several where it takes one.
std::string wrong_count(const CLI::Option& option) {
  const auto seen = static_cast<int>(option.results().size());
  if (seen > option.get_items_expected_max())
    return fmt::format("{}: given {} times, expected {}", option.get_name(), seen,
                       option.get_items_expected_max() == 1
                           ? std::string("once")
                           : fmt::format("at most {}", option.get_items_expected_max()));
  const std::string expected = expectation_of(option).text();
  return fmt::format("{} needs a value{}{}", option.get_name(), expected.empty() ? "" : ": ",
                     expected);
}

}  // namespace

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  std::vector<const CLI::Option*> all;
  for (const CLI::App* app = &command; app; app = app->get_parent()) add_options_of(*app, &all);
  return all;
}

std::string value_problem(const CLI::App& command, const CLI::ParseError& error) {
  const CLI::Option* option = option_in(command, error.what());
  if (!option) return "";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return wrong_count(*option);
  if (dynamic_cast<const CLI::ConversionError*>(&error)) return wrong_value(*option);
  if (!dynamic_cast<const CLI::ValidationError*>(&error)) return "";
  // Checks of this tree say themselves what they expect.
  const bool says_so = std::string(error.what()).find("expected") != std::string::npos;
  return says_so ? "" : wrong_value(*option);
}

}  // namespace meshloom::command_line
