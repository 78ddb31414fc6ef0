// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/sampling/sampling_options.h"

#include <fmt/format.h>

#include <cstdio>
#include <random>

namespace meshloom::cli {

v1::SamplingParams SamplingOptions::params() const {
  v1::SamplingParams params;
  if (max_tokens) params.set_max_tokens(*max_tokens);
  if (top_k) params.set_top_k(*top_k);
  params.set_seed(seed);
  if (temperature) params.set_temperature(*temperature);
  if (top_p) params.set_top_p(*top_p);
  params.set_past_context(past_context);
  return params;
}

v1::SampleStop SamplingOptions::stop() const {
  v1::SampleStop stop;
  stop.mutable_token_ids()->Add(stop_tokens.begin(), stop_tokens.end());
  for (const std::string& text : stop_strings) stop.add_strings(text);
  stop.set_ignore_eos(ignore_eos);
  return stop;
}

void tell_seed(const SamplingOptions& options) {
  if (options.seed_is_given || options.temperature.value_or(1.0) == 0.0) return;
  fmt::print(stderr, "seed {}: --seed {} draws the same again\n", options.seed, options.seed);
}

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  auto* prompt = command.add_option_group(
      "prompt", "What to continue; without it a sequence begins as the model's texts do");
  prompt
      ->add_option("--prompt", options.prompts.texts,
                   "Text, for models of bytes and those with a tokenizer. Given several times: "
                   "several sequences, drawn together, each as it would be alone")
      ->allow_extra_args(false);
  prompt
      ->add_option("--tokens", options.prompts.tokens,
                   "Token ids, separated by commas. Given several times: as --prompt")
      ->allow_extra_args(false);
  prompt->add_option("--prompts-file", options.prompts.file,
                     "A file of UTF-8 with one prompt of text in each line");
  prompt->require_option(0, 1);
  command
      .add_option("--samples", options.samples,
                  "Sequences of each prompt, default 1; at most 64 in all")
      ->check(CLI::Range(1, 64));
  command.add_option("--max-tokens", options.max_tokens, "Of each sequence, default 256");
  command.add_option("--temperature", options.temperature,
                     "Default 1; 0 takes the likeliest token");
  command.add_option("--top-k", options.top_k, "Only among the k likeliest tokens; 0: all");
  command.add_option("--top-p", options.top_p,
                     "Only among the likeliest tokens that make up this probability");
  options.seed = std::random_device{}() % 1'000'000'000;
  command
      .add_option("--seed", options.seed,
                  "The same seed gives the same text; default: another at each call, which is "
                  "shown. Of several sequences the first takes the seed, each other one a seed "
                  "made from it, with which it gets the same text alone")
      ->each([&options](const std::string&) { options.seed_is_given = true; });
  command.add_option("--stop-token", options.stop_tokens,
                     "A token id that ends a sequence; several times");
  command
      .add_option("--stop", options.stop_strings,
                  "Text that ends a sequence, which is shown up to it, for models of bytes and "
                  "those with a tokenizer; several times")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on after the model's end of text");
  command.add_flag("--past-context", options.past_context,
                   "Go on where the model's context is full, from the last half of it; else a "
                   "sequence ends there");
}

}  // namespace meshloom::cli
