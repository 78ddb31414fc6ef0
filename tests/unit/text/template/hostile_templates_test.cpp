// SPDX-License-Identifier: Apache-2.0
// Templates of strangers that are made to take depth, time or memory without end are refused by an
// error, soon and in little memory.
#include <gtest/gtest.h>

#include <functional>

#include "daemon/text/chat_template.h"
#include "kernels/base/error.h"
#include "tests/support/used_resources.h"
#include "tests/unit/text/repeated.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::ordered_json;

std::string render_bounded(const std::string& source, const Json& variables = Json::object()) {
  Budget budget = Budget::of_text(source.size());
  return ChatTemplate(source, "t").render(variables, 0, budget).text;
}

/// Throws ResourceExhausted with the words in its text.
void expect_limited(const std::string& source, const std::string& words = "",
                    const Json& variables = Json::object()) {
  SCOPED_TRACE(source.substr(0, 120));
  const std::int64_t before = test::most_memory();
  const double begin = test::thread_seconds();
  try {
    const std::string text = render_bounded(source, variables);
    ADD_FAILURE() << "it gave " << text.size() << " bytes: " << text.substr(0, 100);
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "TOKENIZER_LIMIT") << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind: " << error.what();
  }
  EXPECT_LT(test::thread_seconds() - begin, 20);
  EXPECT_LT(test::most_memory() - before, std::int64_t{1} << 30);
}

TEST(HostileTemplates, ThatAreNestedDeepAreRefusedWhenTheyAreRead) {
  for (const std::string bracket : {"(", "[", "{1:", "-", "not ", "f(", "x[", "a|f(", "1 if "})
    EXPECT_THROW(render_bounded("{{ " + testing::repeated(bracket, 200'000) + " }}"), Error)
        << bracket;
  expect_limited(
      "{{ " + testing::repeated("(", 200'000) + "1" + testing::repeated(")", 200'000) + " }}",
      "levels");
  expect_limited("{{ " + testing::repeated("[", 200'000) + testing::repeated("]", 200'000) + " }}",
                 "levels");
  expect_limited("{{ " + testing::repeated("- ", 200'000) + "1 }}", "levels");
  expect_limited("{{ 1" + testing::repeated(" + 1", 100'000) + " }}", "levels");
  expect_limited("{{ a" + testing::repeated(".b", 100'000) + " }}", "levels");
  expect_limited("{{ a" + testing::repeated("|upper", 100'000) + " }}", "levels");
  expect_limited("{{ a" + testing::repeated(" if b else c", 80'000) + " }}", "levels");
  expect_limited(testing::repeated("{% if a %}", 40'000) + testing::repeated("{% endif %}", 40'000),
                 "levels");
  expect_limited(testing::repeated("{% for a in b %}", 30'000), "levels");
  expect_limited(std::string((1 << 20) + 1, 'a'), "bytes");
  // What has no levels of its own may be long.
  EXPECT_EQ(render_bounded("{{ 1" + testing::repeated(" ~ 1", 10'000) + " }}").size(), 10'001u);
  EXPECT_EQ(
      render_bounded("{% if a %}" + testing::repeated("{% elif a %}", 10'000) + "{% endif %}"), "");
}

TEST(HostileTemplates, OfManyNamesAndBranchesAreRefused) {
  std::string source;
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = "n" + std::to_string(i);
    source += "{% if a %}{% set " + name + "=1 %}{% endif %}";
  }
  expect_limited(source, "names and branches");
}

TEST(HostileTemplates, WhoseMacrosCallThemselvesAreStopped) {
  expect_limited("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "inside each other");
  expect_limited("{% macro f(x) %}{{ f(x ~ 'a') ~ f(x) }}{% endmacro %}{{ f('') }}");
  expect_limited("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}");
  expect_limited("{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}", "inside each other");
  expect_limited(
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
      "{{ f(60) }}");
}

TEST(HostileTemplates, ThatMakeLargeValuesAreStopped) {
  expect_limited("{{ 'a' * 10 ** 9 }}", "bytes");
  expect_limited("{{ 'a' * 10 ** 18 * 10 ** 18 }}");
  expect_limited("{{ [0] * 10 ** 12 }}");
  expect_limited("{{ ('a' * 10000).replace('a', 'b' * 10000) }}");
  expect_limited("{{ ('a' * 10000).join('b' * 10000) }}");
  expect_limited("{{ '%1000000000d' % 1 }}", "10000");
  expect_limited("{{ '{:1000000000}'.format(1) }}", "10000");
  expect_limited("{{ 'a'.center(10 ** 12) }}");
  expect_limited("{{ 'a\nb' | indent(10 ** 12) }}");
  expect_limited("{{ [1] | tojson(indent=10 ** 12) }}");
  expect_limited(
      "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(100) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}");
  expect_limited(
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}");
  expect_limited(
      "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(40) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}");
  expect_limited(
      "{% for i in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}"
      "{% endfor %}");
}

TEST(HostileTemplates, OfHugeNumbersAreStopped) {
  expect_limited("{{ 10 ** 10 ** 10 }}", "64 bits");
  expect_limited("{{ 9223372036854775807 + 1 }}", "64 bits");
  expect_limited("{{ -9223372036854775807 - 2 }}", "64 bits");
  expect_limited("{{ 4611686018427387904 * 2 }}", "64 bits");
  expect_limited("{{ 99999999999999999999 }}", "64 bits");
  expect_limited("{{ '99999999999999999999' | int }}", "64 bits");
  expect_limited("{{ 1e300 | int }}", "64 bits");
  expect_limited("{{ range(10 ** 12) }}", "100000");
  expect_limited("{{ range(-2 ** 62, 2 ** 62, 2 ** 61) }}", "2^60");
  EXPECT_EQ(render_bounded("{{ (-9223372036854775807 - 1) // -1 if false else 7 }}"), "7");
  expect_limited("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits");
  EXPECT_EQ(render_bounded("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  // The lowest integer has no distance, no width and no opposite that fit.
  const std::string lowest = "(-9223372036854775807 - 1)";
  for (const char* range : {"range(0, -5, -1)", "range(5)", "range(5, 0, -1)", "range(-7, 9, 3)"})
    EXPECT_EQ(render_bounded("{{ " + lowest + " in " + range + " }}{{ 9223372036854775807 in " +
                             range + " }}"),
              "FalseFalse");
  EXPECT_EQ(render_bounded("{{ -4 in range(0, -5, -1) }}{{ -5 in range(0, -5, -1) }}"),
            "TrueFalse");
  EXPECT_EQ(render_bounded("{{ 'ab'.center(" + lowest + ") }}"), "ab");
  EXPECT_THROW(render_bounded("{{ 'a b c' | truncate(" + lowest + ") }}"), InvalidArgument);
  expect_limited("{{ '%*d' % (" + lowest + ", 1) }}", "10000");
  // Python has integers of any size; the JSON library reads larger ones as floats, too.
  EXPECT_EQ(render_bounded("{{ x }}", {{"x", 18446744073709551615u}}), "1.8446744073709552e+19");
}

TEST(HostileTemplates, ThatRunLongAreStopped) {
  expect_limited("{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
                 "steps");
  expect_limited("{% for a in range(100000) %}{% if 'x' in 'a' * 100000 %}{% endif %}{% endfor %}",
                 "steps");
  expect_limited(
      "{% set s = 'a' * 100000 %}{% for a in range(100000) %}"
      "{% if s.rfind('b' ~ s) %}{% endif %}{{ s.rfind('a' * 50000 ~ 'b') }}{% endfor %}",
      "steps");
  expect_limited("{% set l = range(20000) | list %}{% for a in l %}{{ a in l }}{% endfor %}");
  expect_limited("{{ range(100000) | map('string') | list }}");
  const std::string long_text =
      "{% set s = '\xC3\xA9' * 100000 ~ 'b' %}{% for a in range(100000) %}";
  for (const char* use : {"s.count('')", "s.find('b')", "s.rfind('b', 1)"})
    expect_limited(long_text + "{% if " + use + " %}{% endif %}{% endfor %}", "steps");
  expect_limited(
      "{% set l = range(9000) | list %}{{ l | map('in', l) | list if false }}"
      "{{ l | select('in', l) | list | length }}{{ l | select('in', l) | list | length }}");
}

TEST(HostileTemplates, OfValuesInsideEachOtherAreRefused) {
  expect_limited(
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}",
      "levels of lists");
  expect_limited(
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}"
      "{% set ns.x = {1: ns.x} %}{% endfor %}",
      "levels of lists");
  expect_limited(
      "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}"
      "{% set ns.x = ns.x | map('upper') %}{% endfor %}",
      "levels of lists");
  expect_limited(
      "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% for y in [ns.x] %}"
      "{% set ns.x = loop %}{% endfor %}{% endfor %}",
      "levels of lists");
  Json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = Json::array({std::move(deep)});
  expect_limited("{{ x }}", "", {{"x", std::move(deep)}});
  // Namespaces may hold each other.
  EXPECT_EQ(
      render_bounded("{% set a = namespace() %}{% set a.a = [a] %}{{ a.a[0].a[0].a | length }}"),
      "1");
  EXPECT_EQ(
      render_bounded("{% set a = namespace() %}{% for i in range(2000) %}{% set b = namespace(a=a)"
                     " %}{% set a.next = b %}{% endfor %}{% macro f() %}{{ a }}{% endmacro %}"
                     "{% set a.f = f %}ok"),
      "ok");
  expect_limited("{% for i in range(100000) %}{% set x = namespace() %}{% endfor %}", "bytes");
}

TEST(HostileTemplates, WithKeysOfManyValuesAreStopped) {
  const std::string tuples =
      "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
      "{% endfor %}";
  expect_limited(tuples + "{{ {}[ns.t] }}", "steps");
  expect_limited(tuples + "{{ {ns.t: 1} | length }}", "steps");
  EXPECT_THROW(render_bounded("{{ {([1],): 1} }}"), InvalidArgument);
  EXPECT_EQ(render_bounded("{{ {(1, (2,)): 3}[(1, (2,))] }}{{ {}[([1],)] is defined }}"), "3False");
}

TEST(HostileTemplates, ThatBeginManyTextsBeforeTheyEndAnyAreStopped) {
  const std::string part = "{{ 'a' * 400000 }}", held = "bytes of text";
  expect_limited(
      "{% macro f(n) %}" + part + "{% if n and f(n - 1) %}{% endif %}{% endmacro %}" + "{{ f(9) }}",
      held);
  expect_limited("{% set a %}" + part + "{% set b %}" + part + "{% endset %}{% endset %}", held);
  expect_limited("{% filter length %}" + part + "{% filter length %}" + part +
                     "{% endfilter %}{% endfilter %}",
                 held);
  expect_limited(
      "{% for x in [3] recursive %}" + part + "{% if x and loop([x - 1]) %}{% endif %}{% endfor %}",
      held);
  // One behind the other they may be there.
  EXPECT_EQ(render_bounded("{% macro f() %}" + part + "{% endmacro %}" +
                           testing::repeated("{{ f() | length }}", 3)),
            "400000400000400000");
}

TEST(HostileTemplates, WhoseMacrosHaveManyNamesAreStopped) {
  std::string names;
  for (int i = 0; i < 2000; ++i) names += "{% set n" + std::to_string(i) + " = 1 %}";
  expect_limited(
      "{% macro f(n) %}{% if n and f(n - 1) %}{% endif %}" + names + "{% endmacro %}{{ f(100) }}",
      "bytes of text");
}

TEST(HostileTemplates, EndWhereNobodyWantsThem) {
  int asked = 0;
  Budget budget([&] {
    if (++asked > 2) throw Cancelled("nobody wants it");
  });
  const ChatTemplate loops(
      "{% for a in range(100000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", "t");
  EXPECT_THROW(loops.render(Json::object(), 0, budget), Cancelled);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace meshloom::text
