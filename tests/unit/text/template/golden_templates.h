// SPDX-License-Identifier: Apache-2.0
// Cases of tests/golden/chat_templates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/base/input_file.h"
#include "tests/support/source_folder.h"

namespace meshloom::text {

/// What a file of them holds.
inline nlohmann::ordered_json golden_templates(const std::string& file_name) {
  const base::InputFile file(test::source_file("tests/golden/chat_templates/" + file_name));
  return nlohmann::ordered_json::parse(file.read_text(4 << 20));
}

}  // namespace meshloom::text
