// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/json_form.h"

#include <algorithm>
#include <cmath>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

std::string number_form(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

class JsonWriter {
 public:
  JsonWriter(Work& work, const JsonOptions& options) : work_(work), options_(options) {}

  std::string write(const Value& value) {
    add(value);
    return std::move(out_);
  }

 private:
  void add(const Value& value) {
    const Work::Level level(work_);
    work_.spend(1);
    if (const Text* text = value.text())
      add_string(text->bytes);
    else if (const Dict* dict = value.dict())
      add_dict(*dict);
    else if (const Sequence* list = value.sequence();
             list != nullptr && list->kind <= Sequence::Kind::kTuple)
      add_list(list->items);
    else if (value.is_none() || value.is_number())
      append(work_, out_, scalar_form(value));
    else
      work_.fail("Object of type {} is not JSON serializable", value.type_name());
  }

  static std::string scalar_form(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (const double* real = value.get<double>()) return number_form(*real);
    return std::to_string(*value.integer());
  }

  void add_line() {
    if (!options_.indent.has_value()) return;
    append(work_, out_, "\n");
    for (int i = 0; i < level_; ++i) append(work_, out_, *options_.indent);
  }

  template <typename Add>
  void add_elements(std::size_t count, char begin, char end, Add&& add_one) {
    out_ += begin;
    ++level_;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) append(work_, out_, options_.item_separator);
      add_line();
      add_one(i);
    }
    --level_;
    if (count > 0) add_line();
    out_ += end;
  }

  void add_list(const Values& items) {
    add_elements(items.size(), '[', ']', [&](std::size_t i) { add(items[i]); });
  }

  void add_dict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    work_.spend(1 + entries.size());
    if (options_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less(work_, a->first, b->first);
      });
    add_elements(entries.size(), '{', '}', [&](std::size_t i) {
      const Value& key = entries[i]->first;
      if (const Text* text = key.text())
        add_string(text->bytes);
      else if (key.is_none() || key.is_number())
        add_string(scalar_form(key));
      else
        work_.fail("keys must be str, int, float, bool or None, not {}", key.type_name());
      append(work_, out_, options_.key_separator);
      add(entries[i]->second);
    });
  }

  void add_string(std::string_view text) {
    out_ += '"';
    const char* next = text.data();
    const char* const end = next + text.size();
    const char* plain = next;  // what is copied as it is begins here
    while (next < end) {
      const char* at = next;
      const char32_t c = next_char(next);
      const bool is_plain =
          c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !options_.ensure_ascii);
      if (is_plain) continue;
      append(work_, out_, std::string_view(plain, static_cast<std::size_t>(at - plain)));
      add_escape(c);
      plain = next;
    }
    append(work_, out_, std::string_view(plain, static_cast<std::size_t>(end - plain)));
    out_ += '"';
  }
  void add_escape(char32_t c) {
    constexpr std::string_view kCharacters = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const std::size_t i =
        c < 0x80 ? kCharacters.find(static_cast<char>(c)) : std::string_view::npos;
    if (i != std::string_view::npos) {
      append(work_, out_, std::string{'\\', kLetters[i]});
    } else if (c < 0x10000) {
      append(work_, out_, fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c)));
    } else {
      const auto rest = static_cast<std::uint32_t>(c) - 0x10000;
      append(work_, out_,
             fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)));
    }
  }

  Work& work_;
  const JsonOptions& options_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(Work& work, const Value& value, const JsonOptions& options) {
  return JsonWriter(work, options).write(value);
}

}  // namespace meshloom::text::chat
