// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/token_trie.h"

#include <algorithm>

namespace meshloom::text {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens, Budget& budget) {
  for (const auto& [text, id] : tokens) budget.spend(32 + 4 * text.size(), "model");
  std::sort(tokens.begin(), tokens.end());
  // The nodes level by level: those of one parent are neighbours among the sorted tokens.
  struct Range {
    std::uint32_t node;
    std::uint32_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Range> level{{0, 0, static_cast<std::uint32_t>(tokens.size()), 0}}, next;
  for (; !level.empty(); level = std::exchange(next, {}))
    for (auto [node, begin, end, depth] : level) {
      if (begin < end && tokens[begin].first.size() == depth) {
        if (depth > 0) nodes_[node].token = tokens[begin].second;
        ++begin;
      }
      nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = tokens[begin].first[depth];
        std::uint32_t stop = begin;
        while (stop < end && tokens[stop].first[depth] == byte) ++stop;
        next.push_back({static_cast<std::uint32_t>(nodes_.size()), begin, stop, depth + 1});
        nodes_.emplace_back().byte = static_cast<unsigned char>(byte);
        ++nodes_[node].children;
        begin = stop;
      }
    }
}

const TokenTrie::Node* TokenTrie::child(const Node& node, unsigned char byte) const {
  const Node* const begin = nodes_.data() + node.first_child;
  const Node* const end = begin + node.children;
  const Node* const at = std::lower_bound(
      begin, end, byte, [](const Node& a, unsigned char value) { return a.byte < value; });
  return at != end && at->byte == byte ? at : nullptr;
}

}  // namespace meshloom::text
