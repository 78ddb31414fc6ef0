// SPDX-License-Identifier: Apache-2.0
// Usage: encode_documents TOKENIZER_JSON|FOLDER < DOCUMENTS > RESULTS
//
// Encodes every document by itself and decodes it again, for a comparison with another
// implementation. A document is its length as uint32 and its bytes. A result is, for the tokens
// without and then with the template, their number as uint32 and the tokens as int32; then the
// decoded text of the first, without special tokens, as a document. All in the byte order of the
// machine.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"

namespace {

using meshloom::text::TokenId;

constexpr std::uint64_t kMostBytes = 256 << 20;

void write_block(const void* data, std::size_t elements, std::size_t width) {
  const auto count = static_cast<std::uint32_t>(elements);
  std::fwrite(&count, sizeof(count), 1, stdout);
  std::fwrite(data, width, elements, stdout);
}

std::shared_ptr<const meshloom::text::Tokenizer> open(const char* path) {
  if (std::filesystem::is_directory(path)) return meshloom::text::open_tokenizer(path).tokenizer;
  const meshloom::base::InputFile file(path);
  return std::make_shared<meshloom::text::PipelineTokenizer>(
      meshloom::text::read_tokenizer_json(file.read_text(kMostBytes), path));
}

int run(const char* path) {
  const auto tokenizer = open(path);
  meshloom::text::WordCache cache;
  std::uint32_t length = 0;
  while (std::fread(&length, sizeof(length), 1, stdin) == 1) {
    std::string document(length, '\0');
    if (std::fread(document.data(), 1, length, stdin) != length) {
      std::cerr << "encode_documents: the last document is cut off\n";
      return 1;
    }
    std::vector<TokenId> plain, around;
    tokenizer->encode(document, false, cache, plain);
    tokenizer->encode(document, true, cache, around);
    write_block(plain.data(), plain.size(), sizeof(TokenId));
    write_block(around.data(), around.size(), sizeof(TokenId));
    const std::string text = tokenizer->decode(plain, true);
    write_block(text.data(), text.size(), 1);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: encode_documents TOKENIZER_JSON < DOCUMENTS > RESULTS\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const meshloom::Error& error) {
    std::cerr << "encode_documents: " << error.what() << '\n';
    return 1;
  }
}
