// SPDX-License-Identifier: Apache-2.0
// Which conversations of a stream become samples.
#include "daemon/train/data/chat_samples.h"

#include <gtest/gtest.h>

#include "daemon/text/learned_tokens.h"
#include "daemon/text/token_file.h"
#include "daemon/train/data/dataset.h"
#include "tests/unit/train/data_files.h"

namespace meshloom::train {
namespace {

TEST(ChatScan, TheFirstTokenOfAConversationIsNothingToLearn) {
  ChatScan one(0, 4);
  one.add(0, 'a');
  one.close(1);
  EXPECT_TRUE(one.texts().empty()) << "also where no bit says that a conversation begins";
  EXPECT_EQ(one.cuts(), (ChatCuts{0, 0, 1}));
  ChatScan two(0, 4);
  two.add(0, 'a');
  two.add(1, 'b');
  two.add(2, 'c' | text::kBeginsText);
  two.close(3);
  ASSERT_EQ(two.texts().size(), 1u);
  EXPECT_EQ(two.texts()[0].begin, 0);
  EXPECT_EQ(two.texts()[0].end, 2);
  EXPECT_EQ(two.cuts(), (ChatCuts{0, 0, 1}));
}

TEST(ChatSamples, OfAStreamThatBeginsWithoutItsBitAreThoseThatHaveAnAnswer) {
  const testing::DataFolder folder;
  const auto path = folder.write_llmc("chat.bin", 20240801, text::kChatVersion,
                                      {'a', 'b' | text::kBeginsText, 'c'});
  const auto stream =
      std::make_shared<const TokenStream>(TokenStream::open(path, TokenFormat::kLlmc));
  ASSERT_TRUE(stream->is_chat());
  const DatasetOptions options{.seq_len = 4, .vocab_size = 256, .keep_rest = true};
  const Dataset dataset(stream, {0, 3}, options);
  ASSERT_EQ(dataset.size(), 1);
  std::vector<std::int64_t> inputs(4), labels(4);
  EXPECT_EQ(dataset.read(0, {inputs, labels, {}}).labels, 1);
  EXPECT_EQ(labels, (std::vector<std::int64_t>{'c', kIgnoredLabel, kIgnoredLabel, kIgnoredLabel}));
  const Dataset whole = dataset.without_rest();
  EXPECT_EQ(whole.size(), 1);
  EXPECT_FALSE(whole.options().keep_rest);
  EXPECT_EQ(whole.chat(), dataset.chat()) << "nothing is searched again";
}

}  // namespace
}  // namespace meshloom::train
