// SPDX-License-Identifier: Apache-2.0
// Templates against what jinja2 makes of them: small ones of all that the language has, and those
// of 36 models in six renderings each.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/chat_template.h"
#include "kernels/base/error.h"
#include "tests/unit/text/template/golden_templates.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::ordered_json;

/// Renders and compares with {"text", "generated"}, {"raised"} or {"error"}.
void expect_rendering(const Json& golden, const std::string& source, const Json& variables,
                      std::int64_t now) {
  SCOPED_TRACE(source.substr(0, 200));
  try {
    Budget budget = Budget::of_text(source.size() + variables.dump().size());
    const ChatRendering rendering = ChatTemplate(source, "t").render(variables, now, budget);
    ASSERT_TRUE(golden.contains("text")) << "it gave: " << rendering.text;
    EXPECT_EQ(rendering.text, golden.at("text").get<std::string>());
    const std::vector<std::pair<std::size_t, std::size_t>> generated = golden.at("generated");
    EXPECT_EQ(rendering.generated, generated);
  } catch (const Error& error) {
    EXPECT_FALSE(golden.contains("text")) << error.what();
    EXPECT_EQ(error.reason() == "TEMPLATE_RAISED", golden.contains("raised")) << error.what();
    if (golden.contains("raised")) {
      EXPECT_EQ(error.metadata().at("message"), golden.at("raised").get<std::string>());
    }
    EXPECT_EQ(std::string(error.what()).rfind("t:", 0), 0u) << error.what();
  }
}

TEST(GoldenTemplates, OfAllThatTheLanguageHasRenderAsWithJinja) {
  const Json features = golden_templates("features.json");
  ASSERT_GE(features.at("cases").size(), 200u);
  for (const Json& one : features.at("cases"))
    expect_rendering(one, one.at("template"), features.at("variables"), features.at("now"));
}

TEST(GoldenTemplates, OfModelsRenderAsWithJinja) {
  const Json models = golden_templates("models.json");
  ASSERT_EQ(models.at("models").size(), 36u);
  for (const Json& model : models.at("models")) {
    SCOPED_TRACE(model.at("name").get<std::string>());
    ASSERT_EQ(model.at("renderings").size(), 6u);
    for (std::size_t i = 0; i < 6; ++i)
      expect_rendering(model.at("renderings")[i], model.at("template"), models.at("kinds")[i],
                       models.at("now"));
  }
}

}  // namespace
}  // namespace meshloom::text
