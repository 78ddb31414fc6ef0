// SPDX-License-Identifier: Apache-2.0
// JSON of strangers: what is refused, and that it takes time and memory in proportion.
#include "daemon/base/strict_json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

using Json = nlohmann::json;

std::string refusal_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_strict_json(text, limits);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(StrictJson, ReadsWhatTheLibraryReads) {
  for (const char* text : {"null", "true", "-3", "18446744073709551615", "2.5e3", "\"a\\u00e9\\n\"",
                           "[]", "{}", "[[], {}, [1, [2, {\"a\": [null]}]], \"x\"]",
                           R"({"b": 1, "a": {"c": [1, 2, {"d": {}}], "b": null}, "": [""]})"})
    EXPECT_EQ(parse_strict_json(text), Json::parse(text)) << text;
}

TEST(StrictJson, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(refusal_of(R"({"a": 1, "b": 2, "a": 1})"), "has the key \"a\" twice in one object");
  EXPECT_EQ(refusal_of(R"([{"x": [{"\u0061": 1, "a": {}}]}])"),
            "has the key \"a\" twice in one object");
  EXPECT_EQ(refusal_of(R"({"a": {"a": [{"a": 1}]}, "b": {"a": 1}})"), "");
  EXPECT_EQ(parse_strict_json(R"({"a": [1], "b": 2, "a": 3})", {.keys_once = false}),
            Json({{"a", 3}, {"b", 2}}));
}

TEST(StrictJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "\"\xFF\"", "1e999", "[] []"})
    EXPECT_EQ(refusal_of(text).find("is not valid JSON: "), 0u) << text;
}

TEST(StrictJson, LimitsNestingAndValues) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(refusal_of(nested(64)), "");
  EXPECT_EQ(refusal_of(nested(65)), "nests its values deeper than 64 levels");
  EXPECT_EQ(refusal_of(std::string(1'000'000, '[')), "nests its values deeper than 64 levels");
  EXPECT_EQ(refusal_of("[1, 2, 3]", {.values = 4}), "");
  EXPECT_EQ(refusal_of("[1, 2, 3, 4]", {.values = 4}),
            "has more than 4 values, which is the most that are read");
  EXPECT_THROW(parse_strict_json("[1, 2]", {.values = 1}), ResourceExhausted);
}

TEST(StrictJson, TakesTimeInProportionAndEndsWhereNobodyWantsIt) {
  std::string many = "[{}";
  for (int i = 0; i < 200'000; ++i) many += ",{}";
  many += "]";
  const std::clock_t begin = std::clock();
  EXPECT_EQ(parse_strict_json(many).size(), 200'001u);
  // Walking through the parent at each of them takes minutes.
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
  int asked = 0;
  const auto alive = [&] {
    if (++asked == 3) throw Cancelled("nobody wants it");
  };
  EXPECT_THROW(parse_strict_json(many, {.alive = alive}), Cancelled);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace meshloom::base
