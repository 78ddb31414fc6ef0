// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/python_text.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

using Parts = std::vector<std::string_view>;

void add_part(Work& work, Parts& parts, std::string_view part) {
  work.spend(1);
  work.check_bytes((parts.size() + 1) * sizeof(std::string_view));
  parts.push_back(part);
}

std::size_t start_of_last(std::string_view text) {
  std::string_view rest = text;
  pop_char(rest);
  return rest.size();
}

char32_t first_char(std::string_view text) {
  const char* at = text.data();
  return next_char(at);
}

Parts split_spaces(Work& work, std::string_view text, std::int64_t most) {
  Parts parts;
  std::size_t at = skip_spaces(text, 0);
  while (at < text.size()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      add_part(work, parts, text.substr(at));
      break;
    }
    std::size_t end = at;
    while (end < text.size() && !is_space(first_char(text.substr(end))))
      end += utf8_length(text[end]);
    add_part(work, parts, text.substr(at, end - at));
    at = skip_spaces(text, end);
  }
  return parts;
}

Parts split_spaces_from_right(Work& work, std::string_view text, std::int64_t most) {
  Parts parts;
  text = strip_spaces_behind(text);
  while (!text.empty()) {
    if (static_cast<std::int64_t>(parts.size()) == most) {
      add_part(work, parts, text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0) {
      const std::size_t last = start_of_last(text.substr(0, begin));
      if (is_space(first_char(text.substr(last)))) break;
      begin = last;
    }
    add_part(work, parts, text.substr(begin));
    text = strip_spaces_behind(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool ends_line(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

void append(Work& work, std::string& out, std::string_view more) {
  work.spend_bytes(more.size());
  work.check_bytes(out.size() + more.size());
  out += more;
}

std::size_t find_text(Work& work, std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return kNowhere;
  // The search is linear in both.
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  const std::size_t place =
      found == nullptr ? kNowhere
                       : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  work.spend(1 + (std::min(place, text.size()) - from + part.size()) / 4);
  return place;
}

std::size_t find_last(Work& work, std::string_view text, std::string_view part) {
  if (part.size() > text.size()) return kNowhere;
  for (std::size_t at = text.size() - part.size() + 1; at-- > 0;) {
    if (!part.empty() && text[at] != part[0]) {
      work.spend(1);
      continue;
    }
    work.spend_bytes(part.size());
    if (text.substr(at, part.size()) == part) return at;
  }
  return kNowhere;
}

std::int64_t count_text(Work& work, std::string_view text, std::string_view part) {
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = find_text(work, text, part, at)) != kNowhere; at += part.size())
    ++count;
  return count;
}

std::string_view strip(Work& work, std::string_view text,
                       const std::optional<std::string_view>& characters, bool left, bool right) {
  const auto drops = [&](std::string_view one) {
    work.spend(1);
    if (!characters.has_value()) return is_space(first_char(one));
    work.spend_bytes(characters->size());
    return characters->find(one) != kNowhere;
  };
  while (left && !text.empty() && drops(text.substr(0, utf8_length(text[0]))))
    text.remove_prefix(utf8_length(text[0]));
  while (right && !text.empty() && drops(text.substr(start_of_last(text))))
    text.remove_suffix(text.size() - start_of_last(text));
  return text;
}

Parts split(Work& work, std::string_view text, const std::optional<std::string_view>& separator,
            std::int64_t most, bool from_right) {
  work.spend(1 + text.size() / 4);
  if (from_right && most < 0) most = std::numeric_limits<std::int64_t>::max();
  if (!separator.has_value())
    return from_right ? split_spaces_from_right(work, text, most) : split_spaces(work, text, most);
  if (separator->empty()) work.fail("empty separator");
  Parts parts;
  if (from_right) {
    while (static_cast<std::int64_t>(parts.size()) < most) {
      const std::size_t place = find_last(work, text, *separator);
      if (place == kNowhere) break;
      add_part(work, parts, text.substr(place + separator->size()));
      text = text.substr(0, place);
    }
    add_part(work, parts, text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  std::size_t from = 0, place = 0;
  while ((most < 0 || static_cast<std::int64_t>(parts.size()) < most) &&
         (place = find_text(work, text, *separator, from)) != kNowhere) {
    add_part(work, parts, text.substr(from, place - from));
    from = place + separator->size();
  }
  add_part(work, parts, text.substr(from));
  return parts;
}

Parts split_lines(Work& work, std::string_view text, bool keep_ends) {
  work.spend(1 + text.size() / 4);
  Parts parts;
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const char32_t c = first_char(text.substr(at));
    const std::size_t end = at;
    at += utf8_length(text[at]);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    add_part(work, parts, text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) add_part(work, parts, text.substr(begin));
  return parts;
}

std::string replace(Work& work, std::string_view text, std::string_view what, std::string_view with,
                    std::int64_t most) {
  std::string out;
  std::int64_t count = 0;
  std::size_t from = 0;
  if (what.empty()) {
    // Before each character and behind the last.
    while (most < 0 || count < most) {
      append(work, out, with);
      ++count;
      if (from == text.size()) return out;
      const std::size_t size = utf8_length(text[from]);
      append(work, out, text.substr(from, size));
      from += size;
    }
  } else {
    std::size_t place = 0;
    while ((most < 0 || count < most) && (place = find_text(work, text, what, from)) != kNowhere) {
      append(work, out, text.substr(from, place - from));
      append(work, out, with);
      from = place + what.size();
      ++count;
    }
  }
  append(work, out, text.substr(from));
  return out;
}

std::string slice_text(Work& work, std::string_view text, std::size_t length, std::int64_t start,
                       std::int64_t stop, std::int64_t step) {
  work.spend(1 + text.size() / 4);
  if (length == text.size()) {
    if (step == 1)
      return std::string(
          text.substr(static_cast<std::size_t>(start),
                      static_cast<std::size_t>(std::max(stop - start, std::int64_t{0}))));
    std::string out;
    for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
      out += text[static_cast<std::size_t>(i)];
    return out;
  }
  work.check_bytes(text.size() * sizeof(std::uint32_t));
  std::vector<std::uint32_t> places;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at]))
    places.push_back(static_cast<std::uint32_t>(at));
  std::string out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    const std::size_t at = places[static_cast<std::size_t>(i)];
    out += text.substr(at, utf8_length(text[at]));
  }
  return out;
}

std::string escaped_html(Work& work, std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string_view escaped = c == '&'    ? "&amp;"
                                     : c == '<'  ? "&lt;"
                                     : c == '>'  ? "&gt;"
                                     : c == '\'' ? "&#39;"
                                     : c == '"'  ? "&#34;"
                                                 : std::string_view(&c, 1);
    append(work, out, escaped);
  }
  return out;
}

}  // namespace meshloom::text::chat
