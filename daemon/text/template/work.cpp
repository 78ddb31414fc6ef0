// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/work.h"

#include "kernels/base/error.h"

namespace meshloom::text::chat {

std::string Work::place() const { return fmt::format("{}:{}", origin_, line); }

void Work::raise(const std::string& message) const {
  throw InvalidArgument(
      fmt::format("{}: the template refuses the conversation: {}", place(), message),
      "TEMPLATE_RAISED", {{"file", origin_}, {"line", std::to_string(line)}, {"message", message}});
}

void Work::throw_error(const std::string& what) const {
  throw InvalidArgument(fmt::format("{}: {}", place(), what), "TEMPLATE_ERROR",
                        {{"file", origin_}, {"line", std::to_string(line)}});
}

void Work::throw_not_offered(const std::string& what) const {
  throw Unimplemented(fmt::format("{}: {}", place(), what), "NOT_OFFERED",
                      {{"file", origin_}, {"line", std::to_string(line)}});
}

void Work::throw_too_large(const std::string& what) const {
  throw ResourceExhausted(fmt::format("{}: {}", place(), what), "TOKENIZER_LIMIT",
                          {{"file", origin_}, {"line", std::to_string(line)}});
}

}  // namespace meshloom::text::chat
