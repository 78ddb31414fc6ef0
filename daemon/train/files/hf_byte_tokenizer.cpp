// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/hf_byte_tokenizer.h"

#include <nlohmann/json.hpp>

namespace meshloom::train {
namespace {

/// UTF-8 of a code point below 2048.
std::string utf8(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

}  // namespace

std::string byte_tokenizer_json() {
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    // Byte-level BPE writes every byte as one printable character: itself if it is printable in
    // Latin-1, else the next free code point from 256 on.
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
    vocab[utf8(printable ? byte : next++)] = byte;
  }
  const nlohmann::ordered_json byte_level = {{"type", "ByteLevel"},
                                             {"add_prefix_space", false},
                                             {"trim_offsets", true},
                                             {"use_regex", false}};
  nlohmann::ordered_json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = nlohmann::ordered_json::array();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"vocab", vocab},
                   {"merges", nlohmann::ordered_json::array()}};
  return json.dump(2) + "\n";
}

std::string byte_tokenizer_config_json(std::int64_t max_length) {
  const nlohmann::ordered_json json = {{"clean_up_tokenization_spaces", false},
                                       {"model_max_length", max_length},
                                       {"tokenizer_class", "PreTrainedTokenizerFast"}};
  return json.dump(2) + "\n";
}

}  // namespace meshloom::train
