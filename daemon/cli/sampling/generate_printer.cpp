// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/sampling/generate_printer.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/cli/output/records.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {

GeneratePrinter::GeneratePrinter(bool json, const std::vector<std::string>& prompts,
                                 bool unprompted)
    : json_(json), unprompted_(unprompted) {
  for (const std::string& prompt : prompts) sequences_.push_back({prompt, {}, {}, {}, false});
}

void GeneratePrinter::print(const v1::GenerateResponse& response) {
  if (!response.done()) {
    if (first_step_ < 0) first_step_ = response.weights_step();
    last_step_ = response.weights_step();
  }
  if (json_) return print_record(token_record(response));
  for (const std::string& note : response.notes()) fmt::print(stderr, "note: {}\n", note);
  if (response.finish_reason() == "context") ++at_context_;
  Sequence& sequence = sequences_.at(static_cast<std::size_t>(response.index()));
  sequence.seed = response.seed();
  sequence.text += response.text();
  if (!response.done()) sequence.ids += fmt::format("{} ", response.token_id());
  sequence.done = response.done();
  if (sequences_.size() > 1) {
    // All that follow those which were printed and have ended.
    while (printed_ < sequences_.size() && sequences_[printed_].done) print_whole(printed_++);
  } else {
    if (!begun_) std::fputs(sequence.prompt.c_str(), stdout);
    begun_ = true;
    // After a prompt of text the model has bytes, where a token may complete no character.
    if (!sequence.text.empty() || !sequence.prompt.empty())
      print_drawn_text(response.text());
    else if (!response.done() && !unprompted_)
      fmt::print("{} ", response.token_id());
    else if (response.done() && unprompted_)
      std::fputs(sequence.ids.c_str(), stdout);
  }
  std::fflush(stdout);
}

void note_full_contexts(std::size_t ended, std::size_t sequences) {
  if (ended > 0)
    fmt::print(stderr,
               "note: {} of {} sequences ended where the model's context is full; --past-context "
               "goes on\n",
               ended, sequences);
}

void GeneratePrinter::print_whole(std::size_t index) {
  const Sequence& sequence = sequences_[index];
  fmt::print("{}==> {} of {}{}{} <==\n", index == 0 ? "" : "\n", index + 1, sequences_.size(),
             sequence.seed ? fmt::format(", seed {}", *sequence.seed) : "",
             sequence.done ? "" : ", cut off");
  const bool is_text = !sequence.text.empty() || !sequence.prompt.empty();
  std::fputs(sequence.prompt.c_str(), stdout);
  print_drawn_text((is_text ? sequence.text : sequence.ids) + '\n');
}

void GeneratePrinter::end() {
  if (json_) return;
  if (sequences_.size() == 1) {
    std::fputs("\n", stdout);
  } else {
    while (printed_ < sequences_.size()) print_whole(printed_++);
  }
  std::fflush(stdout);
  note_full_contexts(at_context_, sequences_.size());
  if (first_step_ != last_step_)
    fmt::print(stderr,
               "The job trained meanwhile: weights of step {} at first, of step {} at last\n",
               first_step_, last_step_);
}

}  // namespace meshloom::cli
