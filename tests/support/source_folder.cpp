// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_folder.h"

namespace meshloom::test {

std::string source_file(std::string_view path) {
  return std::string(MESHLOOM_SOURCE "/").append(path);
}

std::string program_folder() { return MESHLOOM_BIN; }

std::string program(std::string_view name) { return std::string(MESHLOOM_BIN "/").append(name); }

}  // namespace meshloom::test
