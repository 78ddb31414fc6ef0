// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/token_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/text/byte_tokenizer.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "kernels/base/error.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::text {
namespace {

using test::reason_of;

namespace fs = std::filesystem;

/// Letters a to z are 0 to 25; everything else is left out.
PipelineTokenizer letters() {
  nlohmann::json vocab;
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = c - 'a';
  const nlohmann::json json = {
      {"version", "1.0"},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  return read_tokenizer(json, "letters");
}

std::vector<std::string> documents_of(const fs::path& path, const DocumentReading& reading = {}) {
  std::vector<std::string> documents;
  for (const DocumentFile& file : find_document_files(path))
    for_each_document(file, reading,
                      [&](Document document) { documents.push_back(std::move(document.text)); });
  return documents;
}

TEST(DocumentFiles, AreTextsAndLinesOfJson) {
  const test::TempFolder folder;
  folder.write("b/two.txt", "second\nfile");
  folder.write("a.jsonl",
               "{\"text\": \"first\"}\n\n{\"text\": \"\"}\r\n{\"text\": \"l\\u00e4st\", \"n\": 1}");
  folder.write(".hidden", "never");
  folder.write("b/.git/x", "never");
  folder.write("c.md", "");
  EXPECT_EQ(documents_of(folder.path()),
            (std::vector<std::string>{"first", "l\xC3\xA4st", "second\nfile"}));
}

TEST(DocumentFiles, OfOtherKindsAreRefusedByName) {
  const test::TempFolder folder;
  const std::string zero("abc\0def", 7);
  for (const fs::path& path : {folder.write("x.npy", "text"), folder.write("x.bin", "text"),
                               folder.write("x.json", "{}"), folder.write("x.txt", zero)})
    EXPECT_EQ(reason_of([&] { find_document_files(path); }), "NOT_TEXT") << path;
  const fs::path wide = folder.write("wide.txt", "\xFF\xFE" + std::string("a\0b\0", 4));
  EXPECT_EQ(reason_of([&] { find_document_files(wide); }), "NOT_TEXT");
  EXPECT_EQ(reason_of([&] { find_document_files(folder / "nothing"); }), "NOT_FOUND");
  for (const std::string line : {"no json", "[1]", "{\"other\": \"x\"}", "{\"text\": 5}"}) {
    const fs::path path = folder.write("bad.jsonl", "{\"text\": \"good\"}\n" + line + "\n");
    EXPECT_THROW(documents_of(path), InvalidArgument) << line;
  }
  const fs::path other = folder.write("good.jsonl", "{\"body\": \"x\"}\n");
  EXPECT_EQ(documents_of(other, {.field = "body"}), std::vector<std::string>{"x"});
}

TEST(DocumentFiles, BehindLinksAreFilesAndNoFolders) {
  const test::TempFolder folder;
  folder.write("other/x.txt", "linked");
  folder.write("text/a.txt", "first");
  fs::create_symlink(folder / "other/x.txt", folder / "text/b.txt");
  EXPECT_EQ(documents_of(folder / "text"), (std::vector<std::string>{"first", "linked"}));
  fs::create_directory_symlink(folder / "other", folder / "text/.hidden");
  EXPECT_EQ(documents_of(folder / "text").size(), 2u);
  fs::create_directory_symlink(folder / "other", folder / "text/c");
  EXPECT_EQ(reason_of([&] { find_document_files(folder / "text"); }), "NOT_TEXT");
  fs::remove(folder / "text/c");
  fs::create_symlink(folder / "nothing", folder / "text/c");
  EXPECT_EQ(reason_of([&] { find_document_files(folder / "text"); }), "NOT_FOUND");
}

TEST(TokenFile, HasTheTokensOfAllDocumentsInOrderWhateverTheThreads) {
  const test::TempFolder folder;
  std::string lines;
  std::vector<TokenId> expected;
  for (int i = 0; i < 500; ++i) {
    const std::string text(static_cast<std::size_t>(1 + i % 7), static_cast<char>('a' + i % 26));
    lines += "{\"text\": \"" + text + "\"}\n";
    expected.insert(expected.end(), text.size(), i % 26);
    expected.push_back(99);
  }
  folder.write("text/t.jsonl", lines);
  for (const int threads : {1, 4}) {
    TokenFileOptions options;
    options.encode.end = 99;
    options.encode.threads = threads;
    const auto summary = write_token_file(find_document_files(folder / "text"), letters(), options,
                                          folder / "out.bin");
    EXPECT_EQ(summary.documents, 500);
    EXPECT_EQ(summary.tokens, static_cast<std::int64_t>(expected.size()));
    const TokenFile file(folder / "out.bin");
    EXPECT_EQ(file.read(0, file.size()), expected);
    EXPECT_EQ(file.read(file.size() - 1, 10), std::vector<TokenId>{99});
    EXPECT_EQ(file.summary(), summary);
    EXPECT_FALSE(fs::exists(folder / ".out.bin.new"));
  }
}

TEST(TokenFile, StaysWhatItWasWhenTokenizingFails) {
  const test::TempFolder folder;
  folder.write("out.bin", "old");
  folder.write("text/a.txt", "abc");
  folder.write("text/b.jsonl", "no json");
  EXPECT_THROW(
      write_token_file(find_document_files(folder / "text"), letters(), {}, folder / "out.bin"),
      InvalidArgument);
  EXPECT_THROW(write_token_file(find_document_files(folder.write("e.txt", "123")), letters(), {},
                                folder / "out.bin"),
               InvalidArgument);
  EXPECT_EQ(fs::file_size(folder / "out.bin"), 3u);
  EXPECT_FALSE(fs::exists(folder / ".out.bin.new"));
  EXPECT_THROW(TokenFile(folder / "out.bin"), InvalidArgument);
}

TEST(TokenFile, LeavesAFileThatIsToStay) {
  const test::TempFolder folder;
  folder.write("out.bin", "old");
  TokenFileOptions options;
  options.existing = base::Existing::kRefuse;
  const auto text = find_document_files(folder.write("a.txt", "abc"));
  EXPECT_EQ(reason_of([&] { write_token_file(text, letters(), options, folder / "out.bin"); }),
            "ALREADY_EXISTS");
  EXPECT_EQ(fs::file_size(folder / "out.bin"), 3u);
  EXPECT_FALSE(fs::exists(folder / ".out.bin.new"));
}

TEST(TokenFile, ErrorsNameTheFilesThatWereReadOrTheOneThatWasAskedFor) {
  const test::TempFolder folder;
  const auto error_of = [&](const fs::path& text, const fs::path& out) -> std::string {
    try {
      write_token_file(find_document_files(text), letters(), {}, out);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const fs::path numbers = folder.write("text/numbers.txt", "123");
  EXPECT_EQ(error_of(numbers, folder / "out.bin"),
            numbers.string() + ": 3 bytes of text make no token");
  EXPECT_EQ(error_of(folder.write("blank.jsonl", "\n{\"text\": \"\"}\n"), folder / "out.bin"),
            (folder / "blank.jsonl").string() + ": there is no text under \"text\"");
  const fs::path missing = folder / "no/folder/out.bin";
  EXPECT_EQ(error_of(folder.write("a.txt", "abc"), missing),
            "cannot write " + missing.string() + ": No such file or directory");
}

TEST(TokenFile, SaysHowManyDocumentsAreNoUtf8) {
  const test::TempFolder folder;
  folder.write("text/a.txt", "good");
  folder.write("text/b.txt",
               "ba\xFF"
               "d");
  folder.write("text/c.jsonl", "{\"text\": \"good\"}\n");
  const auto files = find_document_files(folder / "text");
  EXPECT_EQ(write_token_file(files, letters(), {}, folder / "out.bin").replaced_documents, 1);
  EXPECT_EQ(write_token_file(files, ByteTokenizer(), {}, folder / "out.bin").replaced_documents, 0)
      << "bytes are what they are";
}

TEST(DocumentFiles, LinesWithoutTheFieldTellWhatTheyHave) {
  const test::TempFolder folder;
  const std::string kAdvice = " (skip_lines_without_text: true leaves such lines out)";
  const auto error_of = [&](const std::string& lines) -> std::string {
    const fs::path path = folder.write("a.jsonl", lines);
    try {
      check_first_lines(document_file(path), {});
    } catch (const Error& error) {
      return error.reason() + std::string(error.what()).substr(path.string().size());
    }
    return "";
  };
  EXPECT_EQ(error_of("\n{\"text\": \"good\"}\n{\"body\": \"x\", \"id\": 1}\n"),
            "NO_FIELD:3: there is no text under \"text\": the line has \"body\", \"id\"" + kAdvice);
  EXPECT_EQ(error_of("{\"text\": 5}"),
            "NO_FIELD:1: there is no text under \"text\": what it has there is of the type number" +
                kAdvice);
  EXPECT_EQ(
      error_of("[1]"),
      "NO_FIELD:1: there is no text under \"text\": it is of the type array, expected an object" +
          kAdvice);
  EXPECT_EQ(error_of("{\"text\": \"\xFF\"}"),
            "INVALID_ARGUMENT:1: the line has bytes that are no UTF-8, and is therefore no JSON");
  EXPECT_EQ(error_of("{\"text\": \"good\"}\n"), "");
}

TEST(DocumentFiles, OfTextAreReadAsTextUnlessTheirBytesAreKept) {
  const test::TempFolder folder;
  const std::string bytes = "\xEF\xBB\xBFone\r\ntwo\rthree\n\xEF\xBB\xBF";
  const fs::path path = folder.write("a.txt", bytes);
  EXPECT_EQ(documents_of(path), std::vector<std::string>{"one\ntwo\nthree\n\xEF\xBB\xBF"})
      << "in the middle it is a character";
  EXPECT_EQ(documents_of(path, {.keeps_bytes = true}), std::vector<std::string>{bytes});
  EXPECT_TRUE(documents_of(folder.write("mark.txt", "\xEF\xBB\xBF")).empty());
  EXPECT_EQ(documents_of(folder.write("a.jsonl", "\xEF\xBB\xBF{\"text\": \"x\\r\\ny\"}\r\n")),
            std::vector<std::string>{"x\r\ny"})
      << "what a line of JSON spells out is its text";
}

TEST(DocumentFiles, LinesWithoutTextAreSkippedAndCountedWhereThatIsWanted) {
  const test::TempFolder folder;
  folder.write("text/a.jsonl",
               "{\"text\": \"ab\"}\n{\"text\": null}\n{\"body\": \"x\"}\n[1]\n\n{\"text\": \"\"}\n"
               "{\"text\": [\"x\"]}\n{\"text\": \"c\"}\n");
  const auto files = find_document_files(folder / "text");
  TokenFileOptions options;
  EXPECT_EQ(reason_of([&] { write_token_file(files, letters(), options, folder / "out.bin"); }),
            "NO_FIELD");
  options.encode.reading.skips_lines_without_text = true;
  EXPECT_NO_THROW(check_first_lines(files.front(), options.encode.reading));
  const TokenizeSummary summary = write_token_file(files, letters(), options, folder / "out.bin");
  EXPECT_EQ(summary.skipped_lines, 4) << "an empty text is one";
  EXPECT_EQ(summary.documents, 2);
  const TokenFile file(folder / "out.bin");
  EXPECT_EQ(file.summary(), summary);
  EXPECT_EQ(file.read(0, 10), (std::vector<TokenId>{0, 1, 2}));
  folder.write("text/b.jsonl", "{\"text\": \"cut");
  EXPECT_EQ(reason_of([&] {
              write_token_file(find_document_files(folder / "text"), letters(), options,
                               folder / "out.bin");
            }),
            "INVALID_ARGUMENT")
      << "what is no JSON may have lost its text";
  folder.write("text/b.jsonl", "");
  folder.write("text/a.jsonl", "{\"text\": null}\n");
  EXPECT_EQ(reason_of([&] {
              write_token_file(find_document_files(folder / "text"), letters(), options,
                               folder / "out.bin");
            }),
            "NO_TEXT");
}

TEST(DocumentFiles, EveryLineIsCheckedAsFarAsIsWanted) {
  const test::TempFolder folder;
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"text\": \"" + std::string(1000, 'x') + "\"}\n";
  const DocumentFile file = document_file(folder.write("a.jsonl", lines + "{\"text\": null}\n"));
  const auto error_within = [&](std::uint64_t most) -> std::string {
    try {
      check_lines(file, {}, [&](std::uint64_t bytes) { return bytes < most; });
    } catch (const NoTextField& error) {
      return error.metadata().at("line");
    }
    return "";
  };
  EXPECT_EQ(error_within(1 << 30), "1001");
  EXPECT_EQ(error_within(1000), "");
  EXPECT_NO_THROW(check_first_lines(file, {}));
}

TEST(TokenFile, CountsDocumentsWithHalvesOfSurrogatePairs) {
  const test::TempFolder folder;
  folder.write("text/a.jsonl", R"({"text": "a\ud83d"})"
                               "\n"
                               R"({"text": "b\ud83d\ude00"})"
                               "\n"
                               R"({"text": "c", "other": "\udc00"})"
                               "\n");
  const auto files = find_document_files(folder / "text");
  EXPECT_EQ(documents_of(folder / "text"),
            (std::vector<std::string>{"a\xEF\xBF\xBD", "b\xF0\x9F\x98\x80", "c"}));
  const auto summary = write_token_file(files, letters(), {}, folder / "out.bin");
  EXPECT_EQ(summary.documents, 3);
  EXPECT_EQ(summary.replaced_documents, 1);
  EXPECT_EQ(write_token_file(files, ByteTokenizer(), {}, folder / "out.bin").replaced_documents, 1)
      << "bytes have no such half either";
}

}  // namespace
}  // namespace meshloom::text
