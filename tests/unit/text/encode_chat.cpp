// SPDX-License-Identifier: Apache-2.0
// Usage: encode_chat FOLDER LINES.jsonl
//
// Encodes every conversation of the file by the tokenizer and the chat template of the folder, for
// a comparison with another implementation: a line of JSON each, with its ids, which of them are
// learnt, and whether its last answer alone is; or what it is refused with.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "daemon/text/chat_reading.h"
#include "daemon/text/document_files.h"
#include "daemon/text/learned_tokens.h"
#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"

namespace {

using namespace meshloom::text;

nlohmann::json encoded(const std::string& line, const ChatEncoding& encoding,
                       const LinePlace& place, WordCache& cache) {
  std::vector<TokenId> tokens;
  try {
    const ChatText chat = encode_chat_line(line, encoding, place, cache, {}, tokens);
    nlohmann::json result = {{"ids", nlohmann::json::array()},
                             {"learnt", nlohmann::json::array()},
                             {"last", chat.has_last_answer_alone}};
    for (const TokenId token : tokens) {
      result["ids"].push_back(id_of(token));
      result["learnt"].push_back((token & kNotLearnt) == 0 ? 1 : 0);
    }
    return result;
  } catch (const meshloom::Error& error) {
    return {{"error", error.what()}};
  }
}

int run(const char* folder, const char* lines) {
  const FolderTokenizer tokenizer = open_tokenizer(folder);
  const auto source = find_chat_template(folder);
  if (!source) {
    std::cerr << folder << " has no chat template\n";
    return 1;
  }
  const ChatReading reading{LineKind::kMessages, false,
                            std::make_shared<const ChatRenderer>(*source, tokenizer.named, 0)};
  const Template around;
  const ChatEncoding encoding{reading, *tokenizer.tokenizer, around};
  const DocumentFile file{lines, DocumentFormat::kJsonLines};
  WordCache cache;
  for_each_json_line(file, [&](const std::string& line, std::int64_t number) {
    std::cout << encoded(line, encoding, {file.path, number}, cache).dump() << "\n";
    return true;
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: encode_chat FOLDER LINES.jsonl\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "encode_chat: " << error.what() << "\n";
    return 1;
  }
}
