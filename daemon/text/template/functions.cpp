// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/functions.h"

#include <locale.h>

#include <ctime>
#include <limits>

#include "daemon/text/template/iteration.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// Elements of a range, which is the sandbox's bound.
constexpr std::int64_t kMostElements = 100'000;

Value range(Work& work, const Arguments& arguments) {
  if (!arguments.named.empty()) work.fail("range() takes no keyword arguments");
  const Parameters parameters(work, "range", arguments, {"start", "stop", "step"}, 1);
  Range range;
  range.stop = parameters.integer(0);
  if (parameters.at(1) != nullptr) {
    range.start = range.stop;
    range.stop = parameters.integer(1);
  }
  range.step = parameters.integer(2, 1);
  if (range.step == 0) work.fail("range() arg 3 must not be zero");
  for (const std::int64_t number : {range.start, range.stop, range.step})
    if (number > kMostOfRange || number < -kMostOfRange)
      work.too_large("range() of numbers beyond 2^60");
  if (range.size() > kMostElements)
    work.too_large("range() of {} elements, expected at most {}", range.size(), kMostElements);
  return std::make_shared<const Range>(range);
}

/// dict(entries, name=value, ...)
Dict dict_of(Work& work, const char* callee, const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    work.fail("{} expected at most 1 argument, got {}", callee, arguments.positional.size());
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const Dict* other = source.dict()) {
      for (const auto& [key, value] : other->entries()) dict.assign(work, key, value);
    } else {
      const Next next = iterate(work, source);
      for (Value element; next(element);) {
        const Values pair = elements_of(work, element);
        if (pair.size() != 2)
          work.fail("a {} of elements with {} parts, expected 2", callee, pair.size());
        dict.assign(work, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.assign(work, make_text(work, name), value);
  return dict;
}

Value new_namespace(Work& work, const Arguments& arguments) {
  auto names = std::make_shared<Namespace>();
  const Dict dict = dict_of(work, "namespace", arguments);
  for (const auto& [key, value] : dict.entries()) {
    if (key.text() == nullptr)
      work.not_offered("an attribute of a namespace of type '{}'", key.type_name());
    check_attribute_name(work, key.text()->bytes);
    names->attributes.emplace_back(key.text()->bytes, value);
  }
  return names;
}

Value raise_exception(Work& work, const Arguments& arguments) {
  const Parameters parameters(work, "raise_exception", arguments, {"message"}, 1);
  std::string message;
  append_str(work, message, *parameters.at(0));
  work.raise(message);
}

/// One part of a time ("%d", "%-d"), in English and without a time zone, as Python's
/// datetime.now() has none.
std::string time_part(Work& work, const std::string& part, const std::tm& time) {
  constexpr std::string_view kOffered = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyY";
  const char letter = part.back();
  if (letter == '%') return "%";
  if (letter == 'z' || letter == 'Z') return "";
  if (letter == 'f') return "000000";
  if (kOffered.find(letter) == std::string_view::npos)
    work.not_offered("'{}' in a format for the time", part);
  static const ::locale_t kPlain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  char buffer[128];
  // A letter behind it tells an empty part (%p somewhere) from one that does not fit.
  const std::string format = part + "|";
  const std::size_t size = ::strftime_l(buffer, sizeof buffer, format.c_str(), &time, kPlain);
  if (size == 0) work.fail("'{}' in a format for the time has no text", part);
  return std::string(buffer, size - 1);
}

Value strftime_now(Work& work, const Arguments& arguments) {
  const Parameters parameters(work, "strftime_now", arguments, {"format"}, 1);
  const std::string& format = parameters.text(0);
  constexpr std::size_t kMostBytes = 1000;
  if (format.size() > kMostBytes)
    work.too_large("a format of {} bytes for the time, expected at most {}", format.size(),
                   kMostBytes);
  const std::time_t now = work.now();
  std::tm parts{};
  constexpr int kFirstYear = -1899, kLastYear = 9999 - 1900;
  if (::gmtime_r(&now, &parts) == nullptr || parts.tm_year < kFirstYear ||
      parts.tm_year > kLastYear)
    work.fail("the time {} is in no year from 1 to 9999", now);
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      text += format[i];
      continue;
    }
    std::string one = "%";
    ++i;
    if (format[i] == '-' && i + 1 < format.size()) one += format[i++];
    one += format[i];
    text += time_part(work, one, parts);
  }
  return make_text(work, std::move(text));
}

}  // namespace

std::optional<Function> find_function(std::string_view name) {
  constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"range", Function::kRange},
      {"dict", Function::kDict},
      {"namespace", Function::kNamespace},
      {"raise_exception", Function::kRaiseException},
      {"strftime_now", Function::kStrftimeNow}};
  for (const auto& [known, function] : kFunctions)
    if (known == name) return function;
  return std::nullopt;
}

void check_attribute_name(Work& work, std::string_view name) {
  if (name.starts_with('_'))
    work.fail("a namespace cannot have the attribute '{}', which begins with an underscore", name);
}

Value call_function(Work& work, Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRange: return range(work, arguments);
    case Function::kDict: return make_dict(work, dict_of(work, "dict", arguments));
    case Function::kNamespace: return new_namespace(work, arguments);
    case Function::kRaiseException: return raise_exception(work, arguments);
    case Function::kStrftimeNow: break;
  }
  return strftime_now(work, arguments);
}

}  // namespace meshloom::text::chat
