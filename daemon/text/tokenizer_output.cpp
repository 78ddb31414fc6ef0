// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/tokenizer_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>

#include "daemon/base/files.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";

/// A folder with any of them has a tokenizer, or a part of one.
constexpr std::array kFilesOfTokenizers = {
    kTokenizerFile, kConfigFile,       "vocab.json",        "merges.txt",
    "vocab.txt",    "tokenizer.model", "added_tokens.json", "special_tokens_map.json"};

struct NamedPart {
  std::string_view token;
  const char* key;
};
constexpr std::array kNamedParts = {
    NamedPart{"[PAD]", "pad_token"},   NamedPart{"<pad>", "pad_token"},
    NamedPart{"[MASK]", "mask_token"}, NamedPart{"<mask>", "mask_token"},
    NamedPart{"[CLS]", "cls_token"},   NamedPart{"[SEP]", "sep_token"},
    NamedPart{"<s>", "bos_token"},     NamedPart{"<bos>", "bos_token"},
};

OrderedJson byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

void write_text(base::PublishedFile& file, const std::string& text) {
  file.write(std::as_bytes(std::span(text)));
}

}  // namespace

std::string tokenizer_json_text(const TrainedBpe& trained, std::size_t special) {
  OrderedJson added = OrderedJson::array(), vocabulary = OrderedJson::object(),
              merges = OrderedJson::array();
  // The keys of an ordered object are looked for one by one, and these differ.
  auto& tokens = vocabulary.get_ref<OrderedJson::object_t&>();
  for (std::size_t id = 0; id < trained.tokens.size(); ++id) {
    tokens.emplace_back(trained.tokens[id], id);
    if (id < special)
      added.push_back({{"id", id},
                       {"content", trained.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  }
  const auto token = [&](TokenId id) { return trained.tokens[static_cast<std::size_t>(id)]; };
  // No token has a blank in it: every version of the package reads this spelling.
  for (const auto& [first, second] : trained.merges)
    merges.push_back(token(first) + " " + token(second));
  const OrderedJson model = {{"type", "BPE"},
                             {"dropout", nullptr},
                             {"unk_token", nullptr},
                             {"continuing_subword_prefix", nullptr},
                             {"end_of_word_suffix", nullptr},
                             {"fuse_unk", false},
                             {"byte_fallback", false},
                             {"vocab", std::move(vocabulary)},
                             {"merges", std::move(merges)}};
  const OrderedJson all = {{"version", "1.0"},
                           {"truncation", nullptr},
                           {"padding", nullptr},
                           {"added_tokens", std::move(added)},
                           {"normalizer", nullptr},
                           {"pre_tokenizer", byte_level(false)},
                           {"post_processor", nullptr},
                           {"decoder", byte_level(true)},
                           {"model", model}};
  return all.dump(2) + "\n";
}

std::string tokenizer_config_text(const std::vector<std::string>& special) {
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"add_prefix_space", false},
                        {"clean_up_tokenization_spaces", false}};
  if (!special.empty()) config["eos_token"] = special.front();
  for (const std::string& token : special)
    for (const NamedPart& part : kNamedParts)
      if (token == part.token && !config.contains(part.key)) config[part.key] = token;
  return config.dump(2) + "\n";
}

TokenizerOutput::TokenizerOutput(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  for (const char* name : kFilesOfTokenizers)
    if (fs::exists(fs::symlink_status(folder_ / name, error)))
      throw AlreadyExists(fmt::format("{} has a tokenizer: {} is there, and is not overwritten",
                                      base::shown(folder_), name),
                          "TOKENIZER_EXISTS", {{"path", base::shown(folder_ / name)}});
  is_new_ = fs::create_directory(folder_, error);
  if (error) base::throw_input_error("cannot make the folder", folder_, error.value());
  try {
    config_.emplace(folder_ / kConfigFile);
    tokenizer_.emplace(folder_ / kTokenizerFile);
  } catch (...) {
    config_.reset();
    if (is_new_) fs::remove(folder_, error);
    throw;
  }
}

TokenizerOutput::~TokenizerOutput() {
  if (is_done_) return;
  tokenizer_.reset();
  config_.reset();
  std::error_code ignored;
  if (is_new_) fs::remove(folder_, ignored);  // one that is not empty stays
}

void TokenizerOutput::commit(const TrainedBpe& trained, const std::vector<std::string>& special) {
  write_text(*config_, tokenizer_config_text(special));
  write_text(*tokenizer_, tokenizer_json_text(trained, special.size()));
  config_->commit(base::Existing::kRefuse);
  try {
    tokenizer_->commit(base::Existing::kRefuse);
  } catch (...) {
    std::error_code ignored;
    fs::remove(folder_ / kConfigFile, ignored);
    throw;
  }
  is_done_ = true;
}

}  // namespace meshloom::text
