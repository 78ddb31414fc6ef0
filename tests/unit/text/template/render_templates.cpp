// SPDX-License-Identifier: Apache-2.0
// render_templates: renders chat templates for comparisons with jinja2. Reads lines of JSON
// {"template", "variables", "now"} and writes one for each: {"text", "generated"} or {"error",
// "reason"}.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/text/chat_template.h"
#include "kernels/base/error.h"

namespace {

using meshloom::text::ChatTemplate;
using Json = nlohmann::ordered_json;

/// Templates come many times behind each other.
class Rendering {
 public:
  Json render(const Json& request, std::size_t bytes) {
    const std::string source = request.at("template");
    if (template_ == nullptr || source != source_) {
      template_ = nullptr;
      template_ = std::make_unique<ChatTemplate>(source, "template");
      source_ = source;
    }
    meshloom::text::Budget budget = meshloom::text::Budget::of_text(bytes);
    const auto rendering =
        template_->render(request.at("variables"), request.value("now", std::int64_t{0}), budget);
    Json generated = Json::array();
    for (const auto& [begin, end] : rendering.generated) generated.push_back({begin, end});
    return {{"text", rendering.text}, {"generated", generated}};
  }

 private:
  std::string source_;
  std::unique_ptr<ChatTemplate> template_;
};

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  Rendering rendering;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = rendering.render(Json::parse(line), line.size());
    } catch (const meshloom::Error& error) {
      answer = {{"error", error.what()}, {"reason", error.reason()}};
    }
    std::cout << answer.dump() << '\n' << std::flush;
  }
}
