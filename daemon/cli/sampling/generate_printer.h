// SPDX-License-Identifier: Apache-2.0
// GeneratePrinter shows the tokens of `meshloom generate` that come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "v1/generate_service.pb.h"

namespace meshloom::cli {

/// Says on standard error how many sequences ended with the model's context, if some did.
void note_full_contexts(std::size_t ended, std::size_t sequences);

/// Writes to standard output. JSON: one response a line, as it comes, with a token unless it is the
/// last of its sequence. Of one sequence the text as it comes; of several each whole, in order of
/// their indices, below a line that names it and its seed. Token ids, separated by blanks, take the
/// place of text for models without one. What there is to be noted goes to standard error.
class GeneratePrinter {
 public:
  /// `prompts`: the text in front of each sequence, by index; empty if it was given as ids.
  /// `unprompted`: there is no prompt, and tokens whose text comes later are not shown by number.
  GeneratePrinter(bool json, const std::vector<std::string>& prompts, bool unprompted = false);

  void print(const v1::GenerateResponse& response);
  /// Is called after the last response. What has not ended by then is shown as far as it came; says
  /// on standard error if a sequence ended with the model's context, and if the weights changed
  /// meanwhile.
  void end();

 private:
  struct Sequence {
    std::string prompt;
    std::string text, ids;
    std::optional<std::uint64_t> seed;  ///< once it is told
    bool done = false;
  };

  void print_whole(std::size_t index);

  bool json_;
  bool unprompted_;
  std::vector<Sequence> sequences_;
  std::size_t printed_ = 0;
  bool begun_ = false;
  std::size_t at_context_ = 0;                     ///< sequences that ended with it
  std::int64_t first_step_ = -1, last_step_ = -1;  ///< of the weights
};

}  // namespace meshloom::cli
