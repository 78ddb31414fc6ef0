// SPDX-License-Identifier: Apache-2.0
// Cases of tests/golden/tokenizer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "daemon/base/input_file.h"
#include "tests/support/source_folder.h"

namespace meshloom::text {

/// What NAME.json holds.
inline nlohmann::json golden_file(const std::string& name) {
  const base::InputFile file(test::source_file("tests/golden/tokenizer/" + name + ".json"));
  return nlohmann::json::parse(file.read_text(1 << 20));
}

}  // namespace meshloom::text
