// SPDX-License-Identifier: Apache-2.0
// People write some commands as another program calls them; they are told what to write here.
#pragma once

#include <string>
#include <vector>

namespace meshloom::cli {

struct FamiliarCommand {
  const char* path;     ///< behind which the word stands: "" is the program itself
  const char* words;    ///< separated by spaces
  const char* command;  ///< what to write instead, behind the program's name
};

/// Returns all of them, for tests.
const std::vector<FamiliarCommand>& familiar_commands();

/// Returns "here it is `meshloom job submit FILE --follow`" for "train"; empty for a word of which
/// nothing is known. Letters count as lower case ones and underscores as dashes.
std::string command_hint(const std::string& path, const std::string& word);

}  // namespace meshloom::cli
