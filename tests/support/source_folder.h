// SPDX-License-Identifier: Apache-2.0
// Where the tests find the files of the tree and the programs of the build. A definition that every
// source of a test sees would make its objects those of one clone; this way one small object is.
#pragma once

#include <string>
#include <string_view>

namespace meshloom::test {

/// The absolute path of what lies at `path` below the tree that the tests were built from.
std::string source_file(std::string_view path);

/// The folder that holds meshloomd, meshloom and the programs of the tests.
std::string program_folder();

/// The absolute path of one of these programs.
std::string program(std::string_view name);

}  // namespace meshloom::test
