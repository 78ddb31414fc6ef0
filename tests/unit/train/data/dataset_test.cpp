// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/base/error.h"
#include "tests/unit/train/data_files.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;

struct LoadedSample {
  Tokens inputs, labels, documents;
  std::int64_t counted = 0, real = 0;
};

LoadedSample read(const Dataset& dataset, std::int64_t index) {
  const auto length = static_cast<std::size_t>(dataset.options().seq_len);
  LoadedSample sample = {Tokens(length), Tokens(length), Tokens(length), 0, 0};
  const auto counts = dataset.read(index, {sample.inputs, sample.labels, sample.documents});
  sample.counted = counts.labels;
  sample.real = counts.inputs;
  return sample;
}

class DatasetTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TokenStream> stream_of(const std::vector<std::string>& files) {
    for (std::size_t i = 0; i < files.size(); ++i)
      folder_.write_text("text/" + std::to_string(i) + ".txt", files[i]);
    return std::make_shared<const TokenStream>(
        TokenStream::open(folder_.path() / "text", TokenFormat::kText));
  }

  testing::DataFolder folder_;
};

constexpr std::int64_t kIgnore = kIgnoredLabel;

TEST_F(DatasetTest, PackedSamplesOverlapByOneToken) {
  const auto stream = stream_of({"abcdefgh"});
  const Dataset dataset(stream, {0, 8}, {.seq_len = 3, .vocab_size = 256});
  ASSERT_EQ(dataset.size(), 2);
  const LoadedSample second = read(dataset, 1);
  EXPECT_THAT(second.inputs, ElementsAre('d', 'e', 'f'));
  EXPECT_THAT(second.labels, ElementsAre('e', 'f', 'g'));
  EXPECT_EQ(second.counted, 3);
}

TEST_F(DatasetTest, CountsPackedSamples) {
  const auto stream = stream_of({std::string(100, 'x')});
  for (const std::int64_t tokens : {0, 1, 3, 4, 7, 9, 10, 100}) {
    const Dataset dataset(stream, {0, tokens}, {.seq_len = 3, .vocab_size = 256});
    std::int64_t expected = 0;
    while ((expected + 1) * 3 + 1 <= tokens) ++expected;
    EXPECT_EQ(dataset.size(), expected) << tokens << " tokens";
  }
}

TEST_F(DatasetTest, TheRestOfARangeIsAShortSample) {
  const auto stream = stream_of({"abcdefgh"});
  const DatasetOptions options = {.seq_len = 3, .vocab_size = 256, .keep_rest = true};
  const Dataset dataset(stream, {0, 8}, options);
  ASSERT_EQ(dataset.size(), 3);
  EXPECT_THAT(read(dataset, 1).labels, ElementsAre('e', 'f', 'g'));
  const LoadedSample rest = read(dataset, 2);
  EXPECT_THAT(rest.inputs, ElementsAre('g', 0, 0));
  EXPECT_THAT(rest.labels, ElementsAre('h', kIgnore, kIgnore));
  EXPECT_THAT(rest.documents, ElementsAre(0, 1, 1)) << "padding is a document of its own";
  EXPECT_EQ(rest.counted, 1);
  EXPECT_EQ(rest.real, 1);
  EXPECT_EQ(dataset.without_rest().size(), 2);
  // Less than a sample is one; one token has nothing to predict.
  EXPECT_EQ(Dataset(stream, {0, 2}, {.seq_len = 100, .vocab_size = 256, .keep_rest = true}).size(),
            1);
  EXPECT_EQ(Dataset(stream, {0, 1}, options).size(), 0);
  EXPECT_EQ(Dataset(stream, {4, 4}, options).size(), 0);
}

// Every token of a range but the first is a label once, whatever the sizes; of a masked model every
// token, also the last of each document.
TEST_F(DatasetTest, WithTheRestEveryTokenCountsOnce) {
  const std::vector<std::string> files = {"abcdefghijk", "l", "mnopq"};
  const auto stream = stream_of(files);
  for (std::int64_t seq_len = 1; seq_len < 20; ++seq_len) {
    for (const bool masked : {false, true}) {
      for (const bool pack : {false, true}) {
        DatasetOptions options = {.seq_len = seq_len, .vocab_size = 256, .pack_documents = pack};
        options.keep_rest = true;
        if (masked) options.masked = MaskedLmOptions{.vocab_size = 256};
        const Dataset dataset(stream, {0, stream->size()}, options);
        std::string labels;
        for (std::int64_t i = 0; i < dataset.size(); ++i)
          for (const std::int64_t label : read(dataset, i).labels)
            if (label != kIgnore) labels.push_back(static_cast<char>(label));
        EXPECT_EQ(labels, masked ? "abcdefghijklmnopq"
                          : pack ? "bcdefghijklmnopq"
                                 : "bcdefghijknopq")
            << "seq_len " << seq_len << (pack ? ", packed" : "");
      }
    }
  }
}

TEST_F(DatasetTest, DocumentsThatStartSamplesArePadded) {
  const auto stream = stream_of({"abcdef", "x", "yz"});
  const Dataset dataset(stream, {0, stream->size()},
                        {.seq_len = 4, .vocab_size = 256, .pack_documents = false});
  ASSERT_EQ(dataset.size(), 3);  // abcde, ef, yz; "x" has nothing to predict
  EXPECT_THAT(read(dataset, 0).labels, ElementsAre('b', 'c', 'd', 'e'));
  const LoadedSample rest = read(dataset, 1);
  EXPECT_THAT(rest.inputs, ElementsAre('e', 0, 0, 0));
  EXPECT_THAT(rest.labels, ElementsAre('f', kIgnore, kIgnore, kIgnore));
  EXPECT_EQ(rest.counted, 1);
  EXPECT_THAT(read(dataset, 2).inputs, ElementsAre('y', 0, 0, 0));
}

// Every token pair inside a document is a label exactly once, whatever the sizes.
TEST_F(DatasetTest, UnpackedSamplesCoverEveryPairOnce) {
  const std::vector<std::string> files = {"a", "bcdefghijklm", "no", "", "pqrst"};
  const auto stream = stream_of(files);
  std::int64_t pairs = 0;
  for (const auto& file : files)
    pairs += file.empty() ? 0 : static_cast<std::int64_t>(file.size()) - 1;
  for (std::int64_t seq_len = 1; seq_len < 15; ++seq_len) {
    const Dataset dataset(stream, {0, stream->size()},
                          {.seq_len = seq_len, .vocab_size = 256, .pack_documents = false});
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const LoadedSample sample = read(dataset, i);
      counted += sample.counted;
      for (std::size_t s = 0; s < sample.labels.size(); ++s)
        if (sample.labels[s] != kIgnore) {
          EXPECT_EQ(sample.labels[s], sample.inputs[s] + 1);
        }
    }
    EXPECT_EQ(counted, pairs) << "seq_len " << seq_len;
  }
}

TEST_F(DatasetTest, MaskKeepsLossInsideDocuments) {
  const auto stream = stream_of({"abc", "de", "fghi"});
  const Dataset dataset(stream, {0, stream->size()},
                        {.seq_len = 6, .vocab_size = 256, .document_mask = true});
  const LoadedSample sample = read(dataset, 0);
  EXPECT_THAT(sample.documents, ElementsAre(0, 0, 0, 1, 1, 2));
  EXPECT_THAT(sample.labels, ElementsAre('b', 'c', kIgnore, 'e', kIgnore, 'g'));
  EXPECT_EQ(sample.counted, 4);
}

TEST_F(DatasetTest, EndTokensEndDocuments) {
  const auto stream = stream_of({"ab.cd.e", "f"});
  const DatasetOptions options = {
      .seq_len = 7, .vocab_size = 256, .document_mask = true, .document_end = '.'};
  const LoadedSample sample = read(Dataset(stream, {0, stream->size()}, options), 0);
  EXPECT_THAT(sample.documents, ElementsAre(0, 0, 0, 1, 1, 1, 2));
  EXPECT_THAT(sample.labels, ElementsAre('b', '.', kIgnore, 'd', '.', kIgnore, kIgnore));
  EXPECT_EQ(next_document_start(*stream, options, 0), 0);
  EXPECT_EQ(next_document_start(*stream, options, 1), 3);
  EXPECT_EQ(next_document_start(*stream, options, 3), 3);
  EXPECT_EQ(next_document_start(*stream, options, 4), 6);
  EXPECT_EQ(next_document_start(*stream, options, 7), 7);
  EXPECT_EQ(next_document_start(*stream, options, 8), 8);
}

TEST_F(DatasetTest, PaddingIsADocumentOfItsOwn) {
  const auto stream = stream_of({"ab.cde"});
  const DatasetOptions options = {.seq_len = 5,
                                  .vocab_size = 256,
                                  .pack_documents = false,
                                  .document_mask = true,
                                  .document_end = '.'};
  const LoadedSample sample = read(Dataset(stream, {0, 6}, options), 0);
  EXPECT_THAT(sample.inputs, ElementsAre('a', 'b', 0, 0, 0));
  EXPECT_THAT(sample.labels, ElementsAre('b', '.', kIgnore, kIgnore, kIgnore));
  EXPECT_NE(sample.documents[1], sample.documents[2]);
}

TEST_F(DatasetTest, NamesTokensOutsideTheVocabulary) {
  const auto stream = stream_of({"abcz", "abc"});
  const Dataset dataset(stream, {0, 7}, {.seq_len = 3, .vocab_size = 'z'});
  try {
    read(dataset, 0);
    FAIL() << "token z was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("token 122 at position 3"));
    EXPECT_THAT(error.what(), HasSubstr("0.txt"));
    EXPECT_EQ(error.metadata().at("vocab_size"), "122");
  }
}

}  // namespace
}  // namespace meshloom::train
