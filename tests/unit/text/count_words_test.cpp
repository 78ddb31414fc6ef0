// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/count_words.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::text {
namespace {

using Counts = std::map<std::string, std::int64_t>;

Counts counts_of(const WordCounts& words) {
  Counts counts;
  for (const CountedWord& word : words.words()) counts[std::string(word.text)] = word.count;
  return counts;
}

CountedText count(const std::filesystem::path& path, const WordReading& reading = {}) {
  return count_words(find_document_files(path), reading);
}

TEST(CountWords, CountsWhatThePatternFinds) {
  const test::TempFolder folder;
  folder.write("text/a.txt", "the fox,\r\nthe fox");
  folder.write("text/b.jsonl", R"({"text": "the end"})"
                               "\n\n"
                               R"({"text": ""})"
                               "\n");
  const CountedText counted = count(folder / "text");
  EXPECT_EQ(counts_of(counted.words),
            (Counts{{"the", 3}, {" fox", 2}, {",", 1}, {"\n", 1}, {" end", 1}}));
  EXPECT_EQ(counted.words.total(), 8);
  EXPECT_EQ(counted.summary.files, 2);
  EXPECT_EQ(counted.summary.documents, 2);
  EXPECT_EQ(counted.summary.bytes, 16u + 7u);
}

TEST(CountWords, SpecialTokensDivideTheTextAndAreNotCounted) {
  const test::TempFolder folder;
  folder.write("a.txt", "one<|end|>two<|end|><|end|>one");
  EXPECT_EQ(counts_of(count(folder / "a.txt", {.special = {"<|end|>", "[PAD]"}}).words),
            (Counts{{"one", 2}, {"two", 1}}));
}

TEST(CountWords, BytesThatAreNoUtf8CountAsTheReplacementCharacter) {
  const test::TempFolder folder;
  folder.write("a.txt", "ab\xFF\xFF z");
  const CountedText counted = count(folder / "a.txt");
  EXPECT_EQ(counts_of(counted.words), (Counts{{"ab", 1}, {"\uFFFD\uFFFD", 1}, {" z", 1}}));
  EXPECT_EQ(counted.summary.replaced_documents, 1);
}

TEST(CountWords, ALongWordIsSeveral) {
  const test::TempFolder folder;
  folder.write("a.txt", std::string(600, 'x') + " " + std::string(200, 'y'));
  EXPECT_EQ(counts_of(count(folder / "a.txt").words), (Counts{{std::string(256, 'x'), 2},
                                                              {std::string(88, 'x'), 1},
                                                              {" " + std::string(200, 'y'), 1}}));
}

TEST(CountWords, AreTheSameForAnyNumberOfThreadsAlsoWhereWordsAreForgotten) {
  std::mt19937 random(3);
  std::string text;
  while (text.size() < (std::size_t{10} << 20)) {
    text += ' ';
    for (unsigned n = 1 + random() % 5; n > 0; --n) text += static_cast<char>('a' + random() % 26);
    if (random() % 9 == 0) text += '\n';
  }
  const test::TempFolder folder;
  folder.write("a.txt", text);
  for (const std::uint64_t most : {std::uint64_t{1} << 30, std::uint64_t{1} << 23}) {
    WordReading reading{.threads = 1, .most_bytes = most};
    const CountedText one = count(folder / "a.txt", reading);
    reading.threads = 3;
    const CountedText three = count(folder / "a.txt", reading);
    EXPECT_EQ(counts_of(one.words) == counts_of(three.words), true);
    EXPECT_EQ(one.words.total(), three.words.total());
    EXPECT_EQ(one.words.forgotten(), three.words.forgotten());
    EXPECT_EQ(one.words.forgotten() > 0, most < (1u << 30)) << "the test would show nothing";
    EXPECT_LE(one.words.bytes(), most);
    std::int64_t sum = one.words.forgotten();
    for (const CountedWord& word : one.words.words()) sum += word.count;
    EXPECT_EQ(sum, one.words.total());
  }
}

TEST(WordCounts, ForgetTheRarestAlone) {
  WordCounts words;
  for (int i = 0; i < 100; ++i) words.add("w" + std::to_string(i), i < 40 ? 1 : 5);
  const std::uint64_t all = words.bytes();
  words.forget_rarest(all);
  EXPECT_EQ(words.distinct(), 100);
  words.forget_rarest(all - 1);
  EXPECT_EQ(words.distinct(), 60);
  EXPECT_EQ(words.forgotten(), 40);
  EXPECT_EQ(words.total(), 40 + 300);
  words.add("w0", 2);
  EXPECT_EQ(counts_of(words).at("w0"), 2);
}

TEST(CountWords, RefuseWhatHasNoText) {
  const test::TempFolder folder;
  folder.write("empty.txt", "");
  folder.write("zero.txt", std::string("a\0b", 3));
  folder.write("broken.jsonl", "{\"text\": \n");
  const auto reason = [&](const char* name) -> std::string {
    try {
      count(folder / name);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      return error.reason();
    }
    return "";
  };
  EXPECT_EQ(reason("empty.txt"), "NO_TEXT");
  EXPECT_EQ(reason("zero.txt"), "NOT_TEXT");
  EXPECT_NE(reason("broken.jsonl"), "");
  EXPECT_NE(reason("nowhere.txt"), "");
  folder.write("line.txt", "one line");
  EXPECT_EQ(reason("line.txt"), "");
}

TEST(CountWords, ProgressEndsTheWork) {
  struct Stop {};
  const test::TempFolder folder;
  std::string text;
  while (text.size() < (std::size_t{10} << 20)) text += "the fox asks what they said\n";
  folder.write("a.txt", text);
  WordReading reading{.threads = 2};
  int calls = 0;
  reading.progress = [&](std::uint64_t bytes) {
    ++calls;
    if (bytes > 0) throw Stop();
  };
  EXPECT_THROW(count(folder / "a.txt", reading), Stop);
  EXPECT_GT(calls, 0);
}

}  // namespace
}  // namespace meshloom::text
