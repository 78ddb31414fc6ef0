// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/filters.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "daemon/text/template/operators.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

constexpr std::string_view kLeftOut[] = {"filesizeformat", "groupby",   "pprint",
                                         "random",         "striptags", "urlencode",
                                         "urlize",         "wordwrap",  "xmlattr"};

}  // namespace

const Filter* find_filter(std::string_view name) {
  static const std::map<std::string_view, const Filter*> kFilters = [] {
    std::map<std::string_view, const Filter*> all;
    for (const auto part : {text_filters(), number_filters(), sequence_filters(), order_filters(),
                            selection_filters()})
      for (const Filter& filter : part) all.emplace(filter.name, &filter);
    return all;
  }();
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

bool is_filter_of_jinja(std::string_view name) {
  return std::find(std::begin(kLeftOut), std::end(kLeftOut), name) != std::end(kLeftOut);
}

AttributePath::AttributePath(Work& work, const Value& path) {
  if (path.is_none()) return;
  const Text* text = path.text();
  if (text == nullptr) {
    parts_.push_back(path);
    return;
  }
  for (const std::string_view part : split(work, text->bytes, std::string_view("."), -1, false)) {
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        error == std::errc() && end == part.data() + part.size() && index >= 0 && part[0] != '-';
    append(work, parts_, is_index ? Value(index) : make_text(work, std::string(part)));
  }
}

Value AttributePath::of(Work& work, const Value& value, const Value* otherwise) const {
  Value found = value;
  for (const Value& part : parts_) {
    found = item(work, found, part);
    if (otherwise != nullptr && found.is_undefined()) found = *otherwise;
  }
  return found;
}

}  // namespace meshloom::text::chat
