// SPDX-License-Identifier: Apache-2.0
// Files of tokenizers that were spoiled at random, for some seconds: each is refused by an error of
// this program or read, and encodes and decodes or refuses texts in the same way; none takes long.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/sentencepiece.h"
#include "kernels/base/error.h"
#include "tests/support/used_resources.h"
#include "tests/unit/text/golden_file.h"
#include "tests/unit/text/hex.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kTime{15};

class Spoiler {
 public:
  explicit Spoiler(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  /// Changes one value somewhere, by another one of it or of `other`.
  void spoil(Json& json, const Json& other) {
    Json& value = any_of(json);
    switch (below(10)) {
      case 0: value = nullptr; return;
      case 1: value = number(); return;
      case 2: value = text(); return;
      case 3: value = any_of(const_cast<Json&>(other)); return;
      case 4: value = Json::array({value, value, value}); return;
      case 5: repeat(value); return;
      case 6: value = below(2) == 0; return;
      case 7:
        if ((value.is_object() || value.is_array()) && !value.empty()) drop(value);
        return;
      case 8:
        if (value.is_object()) value[text()] = any_of(json);
        return;
      default: wrap(value);
    }
  }
  void spoil(std::string& bytes) {
    if (bytes.empty()) return;
    const std::size_t at = below(bytes.size());
    switch (below(5)) {
      case 0: bytes[at] = static_cast<char>(random_()); return;
      case 1: bytes.erase(at, below(20)); return;
      case 2: bytes.insert(at, bytes.substr(below(bytes.size()), below(200))); return;
      case 3: bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8)); return;
      default: bytes.insert(at, std::string(below(4), static_cast<char>(random_())));
    }
  }
  std::string text() {
    static const std::vector<std::string> kTexts = {
        "",          " ",      "a",         "aa",       "\xE2\x96\x81",
        "Sequence",  "(a+)+b", "a*a*b",     "(?:a|a)*", "\\p{L}+",
        "Replace",   "<0x0A>", "##",        "Prepend",  "\xF0\x9F\x98\x80",
        "Metaspace", "Split",  "ByteLevel", "[UNK]",    "Unigram"};
    return below(8) == 0 ? std::string(below(6000), 'a') : kTexts[below(kTexts.size())];
  }

 private:
  Json number() {
    const Json kNumbers[] = {0, 1, -1, 7, 2'000'000'000, std::uint64_t{1} << 63, 0.5, -1e300, 63};
    return kNumbers[below(std::size(kNumbers))];
  }
  Json& any_of(Json& json) {
    Json* value = &json;
    while ((value->is_object() || value->is_array()) && !value->empty() && below(6) > 0) {
      const std::size_t at = below(value->size());
      if (value->is_array()) {
        value = &(*value)[at];
      } else {
        auto member = value->begin();
        std::advance(member, static_cast<std::ptrdiff_t>(at));
        value = &*member;
      }
    }
    return *value;
  }
  void drop(Json& value) {
    auto member = value.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(below(value.size())));
    value.erase(member);
  }
  /// An array of more of the same.
  void repeat(Json& value) {
    if (!value.is_array() || value.empty() || value.size() > 500) return;
    const Json one = value[below(value.size())];
    for (std::size_t i = below(100); i > 0; --i) value.push_back(one);
  }
  void wrap(Json& value) {
    for (const char* list : {"normalizers", "pretokenizers", "decoders"})
      if (below(3) == 0) value = {{"type", "Sequence"}, {list, Json::array({value, value, value})}};
  }

  std::mt19937_64 random_;
};

/// Uses a tokenizer as a stranger's is used; what it refuses is refused by an Error.
void use(const Tokenizer& tokenizer) {
  static const std::vector<std::string> kTexts = {
      "", "The quick brown fox, \"jumps\" over 12 dogs.\n\n", std::string(3000, 'a'),
      "\xE2\x96\x81\xC3\xA9\xF0\x9F\x98\x80 \xFF x", std::string(500, ' ') + "b"};
  for (const std::string& text : kTexts) {
    try {
      const std::vector<TokenId> tokens = tokenizer.encode(text, true);
      tokenizer.decode(tokens, false);
    } catch (const Error&) {
      // Refused.
    }
  }
  try {
    std::vector<TokenId> all;
    for (TokenId id = 0; id < std::min(tokenizer.end(), 2000); ++id) all.push_back(id);
    tokenizer.decode(all, true);
  } catch (const Error&) {
    // Refused.
  }
}

/// How many files there were.
template <typename Spoil>
int spoil_for(std::chrono::milliseconds time, Spoil&& spoil) {
  const auto end = std::chrono::steady_clock::now() + time;
  int files = 0;
  for (std::uint64_t seed = 1; std::chrono::steady_clock::now() < end; ++seed, ++files) {
    Spoiler spoiler(seed);
    const double begin = test::thread_seconds();
    try {
      spoil(spoiler);
    } catch (const Error&) {
      // Refused.
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what();
    }
    EXPECT_LT(test::thread_seconds() - begin, 30) << "seed " << seed;
  }
  return files;
}

TEST(TokenizerFilesFuzz, JsonThatIsSpoiledIsReadOrRefused) {
  std::vector<Json> sound;
  for (const char* name :
       {"bert", "gpt4o", "llama2", "llama3", "mapped", "unigram", "roberta", "scripts", "words"})
    sound.push_back(golden_file(name).at("tokenizer"));
  const int files = spoil_for(kTime * 3 / 5, [&](Spoiler& spoiler) {
    Json json = sound[spoiler.below(sound.size())];
    const Json& other = sound[spoiler.below(sound.size())];
    // Parts of another one fit together in ways that nobody has thought of.
    for (const char* part : {"normalizer", "pre_tokenizer", "decoder", "post_processor"})
      if (spoiler.below(4) == 0) json[part] = other.value(part, Json());
    for (const char* part : {"normalizer", "pre_tokenizer", "decoder", "post_processor", "model"})
      if (spoiler.below(3) == 0) spoiler.spoil(json[part], other);
    if (spoiler.below(4) == 0) spoiler.spoil(json, other);
    use(read_tokenizer_json(json.dump(-1, ' ', false, Json::error_handler_t::replace), "t.json"));
  });
  EXPECT_GT(files, 50);
}

TEST(TokenizerFilesFuzz, BytesThatAreSpoiledAreReadOrRefused) {
  const std::string json = golden_file("unknown").at("tokenizer").dump();
  std::vector<std::string> models;
  for (const char* name : {"sentencepiece_bpe", "sentencepiece_unigram"})
    models.push_back(bytes_of(golden_file(name).at("model")));
  const int files = spoil_for(kTime * 2 / 5, [&](Spoiler& spoiler) {
    const bool is_model = spoiler.below(4) > 0;
    std::string bytes = is_model ? models[spoiler.below(models.size())] : json;
    for (std::size_t i = spoiler.below(4); i < 4; ++i) spoiler.spoil(bytes);
    if (is_model)
      use(*read_sentencepiece(bytes, {.bos = true, .eos = false}, "x"));
    else
      use(read_tokenizer_json(bytes, "t.json"));
  });
  EXPECT_GT(files, 50);
}

}  // namespace
}  // namespace meshloom::text
