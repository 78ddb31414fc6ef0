// SPDX-License-Identifier: Apache-2.0
// TokenTrie: which tokens a text begins with, in one walk along it.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/budget.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

class TokenTrie {
 public:
  /// Builds the trie of texts that differ; the empty one is never found. It takes 12 bytes of
  /// memory for each byte of theirs, or less.
  TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens, Budget& budget);

  /// Calls found(length, token) for the tokens that `text` begins with, the shortest first. Pays
  /// for each byte that it looks at.
  template <typename Found>
  void for_each_beginning(std::string_view text, Budget& budget, Found&& found) const {
    const Node* node = nodes_.data();
    std::size_t length = 0;
    while (length < text.size()) {
      node = child(*node, static_cast<unsigned char>(text[length++]));
      if (node == nullptr) break;
      if (node->token >= 0) found(length, node->token);
    }
    budget.spend(1 + length, "model");
  }

 private:
  /// Node is a prefix of tokens. Children lie together, in order of their bytes.
  struct Node {
    std::uint32_t first_child = 0;
    std::uint16_t children = 0;
    unsigned char byte = 0;  ///< the last one of the prefix
    TokenId token = -1;
  };

  const Node* child(const Node& node, unsigned char byte) const;

  std::vector<Node> nodes_;
};

}  // namespace meshloom::text
