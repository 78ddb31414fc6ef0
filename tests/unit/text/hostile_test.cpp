// SPDX-License-Identifier: Apache-2.0
// Tokenizers and texts of strangers, of a few bytes that make work or memory without end: each is
// refused by the name of the part, in a moment.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "daemon/text/document_encoder.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "daemon/text/sentencepiece.h"
#include "daemon/text/slow_tokenizer_files.h"
#include "daemon/text/stream_decoder.h"
#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/used_resources.h"
#include "tests/unit/text/repeated.h"
#include "tests/unit/text/sentencepiece_file.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

/// A token for each letter and for "##" before them, so that every model takes them.
Json letters() {
  Json vocab = {{"[UNK]", 0}, {" ", 1}};
  for (char c = 'a'; c <= 'z'; ++c) {
    vocab[std::string(1, c)] = static_cast<int>(vocab.size());
    vocab["##" + std::string(1, c)] = static_cast<int>(vocab.size());
  }
  return vocab;
}

Json tokenizer_with(const char* part, const Json& value) {
  Json json = {{"version", "1.0"},
               {"model", {{"type", "BPE"}, {"vocab", letters()}, {"merges", Json::array()}}}};
  json[part] = value;
  return json;
}

Json sequence(const char* list, const Json& step, std::size_t count) {
  Json steps = Json::array();
  for (std::size_t i = 0; i < count; ++i) steps.push_back(step);
  return {{"type", "Sequence"}, {list, steps}};
}

Json replace(const std::string& what, const std::string& with) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with}};
}

Json split(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json added_token(const std::string& content, int id, bool normalized) {
  return {{"id", id},        {"content", content},       {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", false}};
}

Json word_piece(const std::string& token) {
  Json vocab = letters();
  vocab[token] = static_cast<int>(vocab.size());
  Json json = tokenizer_with("decoder", nullptr);
  json["model"] = {{"type", "WordPiece"},
                   {"unk_token", "[UNK]"},
                   {"continuing_subword_prefix", "##"},
                   {"max_input_chars_per_word", 1 << 30},
                   {"vocab", vocab}};
  return json;
}

Json unigram(const std::string& token) {
  Json json = tokenizer_with("decoder", nullptr);
  json["model"] = {{"type", "Unigram"},
                   {"unk_id", 0},
                   {"vocab", Json::array({Json::array({"[UNK]", 0}), Json::array({"a", -1}),
                                          Json::array({token, -2})})}};
  return json;
}

/// The call throws ResourceExhausted with all the words in its text, soon and in little memory.
void expect_limited(const std::string& name, const std::vector<std::string>& words,
                    const std::function<void()>& call) {
  SCOPED_TRACE(name);
  const std::int64_t before = test::most_memory();
  const double begin = test::thread_seconds();
  try {
    call();
    ADD_FAILURE() << "it was taken";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "TOKENIZER_LIMIT") << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind: " << error.what();
  }
  EXPECT_LT(test::thread_seconds() - begin, 15);
  EXPECT_LT(test::most_memory() - before, std::int64_t{1} << 30);
}

void open(const std::string& text) { read_tokenizer_json(text, "t.json"); }
void encode(const Json& json, const std::string& text) {
  read_tokenizer_json(json.dump(), "t.json").encode(text, false);
}

TEST(HostileTokenizers, WithMoreStepsThanAnyoneHasAreRefused) {
  const Json nested = sequence("pretokenizers", sequence("pretokenizers", split("a"), 40), 1000);
  for (const auto& [part, value] :
       {std::pair("pre_tokenizer",
                  sequence("pretokenizers", {{"type", "WhitespaceSplit"}}, 40'000)),
        std::pair("pre_tokenizer", nested),
        std::pair("normalizer", sequence("normalizers", replace("a", "aa"), 60)),
        std::pair("decoder", sequence("decoders", replace("a", "aa"), 60))})
    expect_limited(part, {std::string("t.json.") + part, "expected at most 32"},
                   [&] { open(tokenizer_with(part, value).dump()); });
  Json json =
      tokenizer_with("post_processor",
                     sequence("processors", {{"type", "ByteLevel"}, {"trim_offsets", true}}, 60));
  expect_limited("post_processor", {"processors", "expected at most 32"},
                 [&] { open(json.dump()); });
  // As many as are taken split as one does.
  json = tokenizer_with("pre_tokenizer", sequence("pretokenizers", split("b"), 32));
  EXPECT_EQ(read_tokenizer_json(json.dump(), "t.json").encode("abbc", false).size(), 4u);
}

TEST(HostileTokenizers, WithPartsOfManyBytesAreRefused) {
  const std::string large(200'000, 'a');
  for (const auto& [part, value] :
       {std::pair("normalizer", Json{{"type", "Prepend"}, {"prepend", large}}),
        std::pair("normalizer", replace("a", large)), std::pair("decoder", replace(large, "a")),
        std::pair("pre_tokenizer", split(large)),
        std::pair("pre_tokenizer", Json{{"type", "Metaspace"}, {"replacement", large}}),
        std::pair("added_tokens", Json::array({added_token(large, 60, false)}))})
    expect_limited(part, {std::string("t.json.") + part, "has 200000 bytes"},
                   [&] { open(tokenizer_with(part, value).dump()); });
  expect_limited("WordPiece", {"t.json.model.vocab", "a token of 200000 bytes"},
                 [&] { open(word_piece(large).dump()); });
  expect_limited("Unigram", {"t.json.model.vocab", "a token of 200000 bytes"},
                 [&] { open(unigram(large).dump()); });
  expect_limited("classes of characters", {"is too large"}, [] {
    open(tokenizer_with("pre_tokenizer", split(testing::repeated("\\p{L}", 800))).dump());
  });
  expect_limited("more classes", {"has 200000 bytes"}, [] {
    open(tokenizer_with("pre_tokenizer", split(testing::repeated("\\p{L}", 40'000))).dump());
  });
}

TEST(HostileTokenizers, OfManySmallValuesAreRefusedOrReadInProportion) {
  expect_limited("arrays", {"t.json", "more than 8000000 values"},
                 [] { open("[" + testing::repeated("[],", 9'000'000) + "0]"); });
  // 100,000 objects in one, each of which ends in its parent.
  Json json = tokenizer_with("decoder", nullptr);
  for (int i = 0; i < 100'000; ++i) json["padding"].push_back(Json::object());
  const double begin = test::thread_seconds();
  EXPECT_NO_THROW(open(json.dump()));
  EXPECT_LT(test::thread_seconds() - begin, 5);
  expect_limited("around", {"post_processor", "more than 64 tokens around a text"}, [] {
    Json pieces = Json::array({{{"Sequence", Json::object()}}});
    for (int i = 0; i < 1000; ++i) pieces.push_back({{"SpecialToken", {{"id", "x"}}}});
    open(tokenizer_with("post_processor",
                        {{"type", "TemplateProcessing"},
                         {"single", pieces},
                         {"special_tokens", {{"x", {{"ids", std::vector<int>(60, 1)}}}}}})
             .dump());
  });
}

TEST(HostileTokenizers, ThatMakeTextWithoutEndAreStopped) {
  const Json doubled = sequence("normalizers", replace("a", "aa"), 32);
  expect_limited("normalizer", {"normalizer", "become more than"},
                 [&] { encode(tokenizer_with("normalizer", doubled), "banana"); });
  // The same where the tokenizer is opened.
  Json json = tokenizer_with("normalizer", doubled);
  json["added_tokens"] = {added_token("aaa", 60, true)};
  expect_limited("added tokens", {"normalizer", "become more than"}, [&] { open(json.dump()); });
  json = tokenizer_with("normalizer", {{"type", "Prepend"}, {"prepend", std::string(4000, 'a')}});
  for (int i = 0; i < 50'000; ++i)
    json["added_tokens"].push_back(added_token("x" + std::to_string(i), 60 + i, true));
  expect_limited("many added tokens", {"added_tokens", "have more than 8388608 bytes"},
                 [&] { open(json.dump()); });
  json = tokenizer_with("pre_tokenizer", sequence("pretokenizers",
                                                  {{"type", "Metaspace"},
                                                   {"replacement", "  "},
                                                   {"prepend_scheme", "never"},
                                                   {"split", false}},
                                                  32));
  expect_limited("Metaspace", {"pre_tokenizer", "become more than"}, [&] { encode(json, "a b"); });
  json = tokenizer_with("decoder", sequence("decoders", replace("a", "aa"), 32));
  const PipelineTokenizer tokenizer = read_tokenizer_json(json.dump(), "t.json");
  const std::vector<TokenId> tokens = tokenizer.encode("banana", false);
  expect_limited("decoder", {"decoder", "become more than"},
                 [&] { tokenizer.decode(tokens, false); });
  StreamDecoder stream(std::make_shared<PipelineTokenizer>(read_tokenizer_json(json.dump(), "t")),
                       false);
  expect_limited("a stream", {"decoder"}, [&] {
    for (int i = 0; i < 1000; ++i) stream.add(tokens.at(1));
  });
}

TEST(HostileTokenizers, ThatTakeTimeWithoutEndAreStopped) {
  const std::string text(200'000, 'a');
  const std::string almost = std::string(4000, 'a') + "b";
  expect_limited("an added token", {"added_tokens", "steps"}, [&] {
    Json json = tokenizer_with("added_tokens", Json::array({added_token(almost, 60, false)}));
    encode(json, text);
  });
  expect_limited("WordPiece", {"model", "steps"}, [&] {
    // Each place looks at all of the token, which takes a letter each time.
    Json json = word_piece("##" + almost);
    encode(json, text);
  });
  expect_limited("Unigram", {"model", "steps"}, [&] { encode(unigram(almost), text); });
  for (const char* regex :
       {"(a+)+b", "(?:a|aa)+b", "(?>a*)b", "(?:(?>a*)(?=b)|a)*c", "(?:a?){30}a{30}b",
        "(?=(a+a+)+b)", "a*a*a*a*b", "(?<=a)a*[^a]", "(?:(?:a*)*)*b"}) {
    expect_limited(std::string("Split at ") + regex, {},
                   [&] { encode(tokenizer_with("pre_tokenizer", split(regex)), text); });
  }
  expect_limited("Replace", {"normalizer"}, [&] {
    encode(
        tokenizer_with("normalizer",
                       {{"type", "Replace"}, {"pattern", {{"Regex", "(a+)+b"}}}, {"content", "x"}}),
        text);
  });
}

TEST(HostileTokenizers, InOtherFilesAreRefused) {
  const std::string piece = bytes_field(1, bytes_field(1, "b"));
  expect_limited("pieces", {"x: has 2097152 pieces"},
                 [&] { read_sentencepiece(testing::repeated(piece, 5'000'000), {}, "x"); });
  constexpr char kUnigram = 1, kBpe = 2;
  for (const char kind : {kUnigram, kBpe}) {
    const auto tokenizer =
        read_sentencepiece(model_of(kind, "", map_of('b', std::string(4090, 'a'))), {}, "x");
    expect_limited("a map", {"normalizer", "become more than"},
                   [&] { tokenizer->encode(std::string(100'000, 'b'), false); });
    EXPECT_EQ(tokenizer->encode("b", false).size(), 4090u);
  }
  const test::TempFolder folder;
  folder.write("vocab.txt", std::string(5'000'000, '\n'));
  expect_limited("lines", {"vocab.txt", "more than 4194304 lines"},
                 [&] { open_tokenizer(folder.path()); });
  const std::string twice = R"({"eos_token": "a", "eos_token": "b"})";
  folder.write("tokenizer_config.json", twice);
  try {
    open_tokenizer(folder.path());
    ADD_FAILURE() << "a key twice was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("has the key \"eos_token\" twice"), std::string::npos)
        << error.what();
  }
}

TEST(HostileTokenizers, AKeyThatIsThereTwiceIsRefused) {
  std::string text = tokenizer_with("decoder", nullptr).dump();
  text.insert(1, R"("version": "1.0", )");
  try {
    open(text);
    ADD_FAILURE() << "it was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "t.json: has the key \"version\" twice in one object");
  }
}

TEST(StopChecks, EndOpeningEncodingAndDecoding) {
  int asked = 0;
  const StopCheck stop = [&] {
    if (++asked > 2) throw Cancelled("nobody wants it");
  };
  const PipelineTokenizer tokenizer = read_tokenizer_json(word_piece("ab").dump(), "t.json");
  const std::string text = testing::repeated("ab ba ", 200'000);
  EXPECT_THROW(tokenizer.encode(text, false, stop), Cancelled);
  EXPECT_EQ(asked, 3);
  Json json = word_piece("ab");
  for (int i = 0; i < 300'000; ++i) json["model"]["vocab"]["t" + std::to_string(i)] = 60 + i;
  asked = 0;
  EXPECT_THROW(read_tokenizer_json(json.dump(), "t.json", stop), Cancelled);
  EXPECT_EQ(asked, 3);
  asked = 0;
  Budget budget(stop);
  const std::vector<TokenId> tokens(1'000'000, 2);
  EXPECT_THROW(tokenizer.decode(tokens, false, budget), Cancelled);
}

TEST(StopChecks, EndADocumentThatTakesLongInAnyThread) {
  const test::TempFolder folder;
  // Many seconds within the budget: a third of a microsecond at each place.
  const PipelineTokenizer tokenizer =
      read_tokenizer_json(tokenizer_with("pre_tokenizer", split("(?:a?){2}a{200}b")).dump(), "t");
  for (const char* name : {"a.txt", "b.txt", "c.txt"})
    folder.write(name, std::string(20'000'000, 'a'));
  struct Interrupted {};
  for (const int threads : {1, 3}) {
    EncodeOptions options;
    options.threads = threads;
    const auto begin = Clock::now();
    options.progress = [&](std::uint64_t) {
      if (Clock::now() > begin + std::chrono::milliseconds(300)) throw Interrupted();
    };
    EXPECT_THROW(encode_documents(find_document_files(folder.path()), tokenizer, options,
                                  [](const std::vector<TokenId>&) {}),
                 Interrupted);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20)) << threads;
  }
}

}  // namespace
}  // namespace meshloom::text
