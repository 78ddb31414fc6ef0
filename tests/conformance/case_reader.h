// SPDX-License-Identifier: Apache-2.0
// Finding case files and reading them into cases, one per variant.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// A case, or why there is none.
struct CaseEntry {
  std::string name;
  std::optional<Case> value;
  std::string error;  ///< of a malformed case
};

struct CaseFile {
  std::filesystem::path file;
  std::string name;  ///< path below the argument, without ".json"
};

/// The .json files of `paths` (files, or folders searched recursively; what lies in a Hugging Face
/// folder is no case), sorted by name. Throws NotFound naming a path that does not exist.
std::vector<CaseFile> find_case_files(std::span<const std::filesystem::path> paths);

/// All cases of a file, checked as far as needs neither tensors nor ranks: JSON, keys and their
/// types, the mesh, the kind. Never throws for what is in the file.
std::vector<CaseEntry> read_case_file(const CaseFile& file, std::span<const Kind> kinds);

/// Whether the whole name matches; * stands for any characters, ? for one.
bool matches_glob(const std::string& name, const std::string& glob);

}  // namespace meshloom::conformance
