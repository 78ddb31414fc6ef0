// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/chat_template.h"

#include "daemon/text/template/parser.h"
#include "daemon/text/template/renderer.h"
#include "daemon/text/template/work.h"
#include "kernels/base/error.h"

namespace meshloom::text {

struct ChatTemplate::Parsed {
  Parsed(std::string_view text, std::string origin)
      : source(text, std::move(origin)), syntax(chat::parse_template(source)) {}

  chat::SourceText source;
  chat::Syntax syntax;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string origin)
    : parsed_(std::make_unique<const Parsed>(source, std::move(origin))) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatRendering ChatTemplate::render(const nlohmann::ordered_json& variables, std::int64_t now,
                                   Budget& budget) const {
  check(variables.is_object(), "the variables of a chat template are a {}, expected an object",
        variables.type_name());
  chat::Work work(budget, parsed_->source.origin(), now);
  chat::Sink sink = chat::Renderer(work, parsed_->syntax, variables).render();
  return {std::move(sink.text), std::move(sink.generated)};
}

bool ChatTemplate::marks_generation() const { return parsed_->syntax.marks_generation; }

}  // namespace meshloom::text
