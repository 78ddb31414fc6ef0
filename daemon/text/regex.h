// SPDX-License-Identifier: Apache-2.0
// Regex: a regular expression as tokenizer.json has them (Oniguruma's syntax), matched by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace meshloom::text {

/// The expression for PCRE2: classes of characters (\p{..}, \s, \d, \w) are written out from our
/// own tables, so that the library's version of Unicode plays no part. Throws Unimplemented naming
/// what the two syntaxes do not share or what this program does not know.
std::string to_pcre2(std::string_view expression);

/// May be used by several threads at once.
class Regex {
 public:
  /// Throws as to_pcre2, and InvalidArgument for what is no regular expression.
  explicit Regex(std::string_view expression);

  /// Calls body(begin, end) for the matches in `text`, valid UTF-8, from left to right. After an
  /// empty match the search goes on one character later. Throws ResourceExhausted if PCRE2 gives up
  /// on the text: never taken for its end.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& body) const;

 private:
  std::string expression_;
  std::shared_ptr<const void> code_;
};

}  // namespace meshloom::text
