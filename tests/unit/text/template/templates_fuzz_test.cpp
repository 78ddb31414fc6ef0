// SPDX-License-Identifier: Apache-2.0
// Templates that were spoiled or made up at random, for some seconds: each is refused by an error
// of this program or rendered; none takes long.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/text/chat_template.h"
#include "kernels/base/error.h"
#include "tests/support/used_resources.h"
#include "tests/unit/text/template/golden_templates.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kTime{12};

/// Makes templates by a grammar, and spoils others.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }

  void spoil(std::string& text) {
    static const std::vector<std::string> kParts = {"{{",
                                                    "}}",
                                                    "{%",
                                                    "%}",
                                                    "{#",
                                                    "#}",
                                                    "-%}",
                                                    "{%-",
                                                    "(",
                                                    ")",
                                                    "[",
                                                    "]",
                                                    "{",
                                                    "}",
                                                    "'",
                                                    "\"",
                                                    " if ",
                                                    " for ",
                                                    " in ",
                                                    "|",
                                                    "|list",
                                                    "|tojson",
                                                    "|join",
                                                    "[::-1]",
                                                    ".items()",
                                                    " ~ ",
                                                    " is ",
                                                    " not ",
                                                    "endfor",
                                                    "else",
                                                    "\\",
                                                    "\xF0\x9F\x98\x80",
                                                    "9223372036854775807",
                                                    "*",
                                                    "**",
                                                    "loop",
                                                    "namespace(",
                                                    "range(99999)",
                                                    "{% set x = ",
                                                    "{% macro f() %}",
                                                    "{{ f() }}"};
    if (text.empty()) return;
    const std::size_t at = below(text.size());
    switch (below(5)) {
      case 0: text.erase(at, below(20)); return;
      case 1: text.insert(at, kParts[below(kParts.size())]); return;
      case 2: text.insert(at, text.substr(below(text.size()), below(300))); return;
      case 3: text[at] = static_cast<char>(random_()); return;
      default: text.replace(at, below(10), kParts[below(kParts.size())]);
    }
  }

  std::string block(int depth) {
    std::string text;
    for (std::size_t i = 1 + below(3); i > 0; --i) text += statement(depth);
    return text;
  }

 private:
  std::string statement(int depth) {
    if (depth <= 0) return "{{ " + expression(3) + " }}";
    const std::string e = expression(3), body = block(depth - 1);
    switch (below(12)) {
      case 0: return "{% if " + e + " %}" + body + "{% else %}x{% endif %}";
      case 1: return "{% for x in " + e + " %}" + body + "{% endfor %}";
      case 2: return "{% for x in " + e + " if x %}" + body + "{{ loop.index }}{% endfor %}";
      case 3: return "{% for x in " + e + " recursive %}{{ x }}{{ loop(x) if x }}{% endfor %}";
      case 4: return "{% set " + name() + " = " + e + " %}";
      case 5: return "{% set " + name() + " %}" + body + "{% endset %}";
      case 6: return "{% set ns = namespace(v=" + e + ") %}{% set ns.v = [ns.v] %}{{ ns.v }}";
      case 7: return "{% macro f(a, b=1) %}" + body + "{% endmacro %}{{ f(" + e + ") }}";
      case 8: return "{% call f(1) %}" + body + "{% endcall %}";
      case 9: return "{% filter upper %}" + body + "{% endfilter %}";
      case 10: return "{% generation %}" + body + "{% endgeneration %}";
      default: return "{{ " + e + " }} text\n";
    }
  }

  std::string name() {
    static const std::vector<std::string> kNames = {"a", "b", "f", "t", "n", "s", "u",    "e",
                                                    "l", "w", "d", "m", "x", "y", "loop", "ns"};
    return kNames[below(kNames.size())];
  }

  std::string constant() {
    static const std::vector<std::string> kConstants = {"0",
                                                        "1",
                                                        "-1",
                                                        "7",
                                                        "2.5",
                                                        "1e308",
                                                        "''",
                                                        "'a'",
                                                        "'\xC3\xA9\\n'",
                                                        "true",
                                                        "none",
                                                        "[]",
                                                        "{}",
                                                        "()",
                                                        "[1, 'a']",
                                                        "{'k': [1]}",
                                                        "(1, 2)",
                                                        "range(5)",
                                                        "9223372036854775807",
                                                        "'%s %d'",
                                                        "'{} {0}'",
                                                        "'a' * 1000"};
    return kConstants[below(kConstants.size())];
  }

  std::string expression(int depth) {
    if (depth <= 0) return below(2) == 0 ? name() : constant();
    static const std::vector<std::string> kOperators = {
        "+",  "-",  "*", "/",  "//", "%",      "**",  "~",
        "==", "!=", "<", ">=", "in", "not in", "and", "or"};
    static const std::vector<std::string> kFilters = {"list",
                                                      "join",
                                                      "join(', ')",
                                                      "upper",
                                                      "title",
                                                      "length",
                                                      "tojson",
                                                      "tojson(indent=2)",
                                                      "first",
                                                      "last",
                                                      "sort",
                                                      "unique",
                                                      "map('string')",
                                                      "map(attribute='role')",
                                                      "select",
                                                      "selectattr('n')",
                                                      "reject('odd')",
                                                      "items",
                                                      "dictsort",
                                                      "reverse",
                                                      "int",
                                                      "float",
                                                      "round",
                                                      "abs",
                                                      "sum",
                                                      "min",
                                                      "max",
                                                      "trim",
                                                      "replace('a', 'bb')",
                                                      "indent",
                                                      "safe",
                                                      "e",
                                                      "string",
                                                      "default(1)",
                                                      "batch(2)",
                                                      "slice(2)",
                                                      "truncate(5)",
                                                      "wordcount",
                                                      "format(1)",
                                                      "attr('x')"};
    static const std::vector<std::string> kMethods = {
        "strip()",          "split()",   "split(',')", "rsplit('a', 1)", "upper()",
        "title()",          "items()",   "keys()",     "get('x')",       "startswith('a')",
        "replace('', '-')", "find('a')", "join(l)",    "splitlines()",   "format(1, 2)",
        "count('a')",       "x",         "items",      "zfill(9)",       "center(9)"};
    static const std::vector<std::string> kTests = {"defined",  "none", "string", "mapping",
                                                    "sequence", "odd",  "in [1]", "iterable"};
    const std::string a = expression(depth - 1), b = expression(depth - 1);
    switch (below(9)) {
      case 0:
      case 1: return "(" + a + " " + kOperators[below(kOperators.size())] + " " + b + ")";
      case 2: return a + " | " + kFilters[below(kFilters.size())];
      case 3: return "(" + a + ")." + kMethods[below(kMethods.size())];
      case 4: return "(" + a + ")[" + b + "]";
      case 5: return "(" + a + ")[" + b + ":" + expression(0) + ":" + constant() + "]";
      case 6: return "(" + a + " if " + b + " else " + expression(0) + ")";
      case 7: return "(" + a + " is " + kTests[below(kTests.size())] + ")";
      default: return "[" + a + ", " + b + "]";
    }
  }

  std::mt19937_64 random_;
};

/// How many templates were made, of which how many were rendered.
template <typename Make>
std::pair<int, int> render_for(std::chrono::milliseconds time, const Json& variables, Make&& make) {
  const auto end = std::chrono::steady_clock::now() + time;
  int made = 0, rendered = 0;
  for (std::uint64_t seed = 1; std::chrono::steady_clock::now() < end; ++seed, ++made) {
    Maker maker(seed);
    const double begin = test::thread_seconds();
    const std::string source = make(maker);
    try {
      Budget budget;
      ChatTemplate(source, "t").render(variables, 0, budget);
      ++rendered;
    } catch (const InternalError& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << source;
    } catch (const Error&) {
      // Refused.
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << source;
    }
    EXPECT_LT(test::thread_seconds() - begin, 20) << "seed " << seed << "\n" << source;
  }
  return {made, rendered};
}

TEST(TemplatesFuzz, ThatAreSpoiledAreRenderedOrRefused) {
  const Json features = golden_templates("features.json"), models = golden_templates("models.json");
  const auto [made, rendered] = render_for(kTime / 2, features.at("variables"), [&](Maker& maker) {
    const bool of_model = maker.below(4) == 0;
    const Json& all = of_model ? models.at("models") : features.at("cases");
    std::string source = all[maker.below(all.size())].at("template");
    for (std::size_t i = 1 + maker.below(4); i > 0; --i) maker.spoil(source);
    return source;
  });
  EXPECT_GT(made, 200);
  EXPECT_GT(rendered, 10);
}

TEST(TemplatesFuzz, ThatAreMadeUpAreRenderedOrRefused) {
  const Json variables = golden_templates("features.json").at("variables");
  const auto [made, rendered] =
      render_for(kTime / 2, variables, [](Maker& maker) { return maker.block(3); });
  EXPECT_GT(made, 200);
  EXPECT_GT(rendered, 10);
}

}  // namespace
}  // namespace meshloom::text
