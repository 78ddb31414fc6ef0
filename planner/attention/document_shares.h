// SPDX-License-Identifier: Apache-2.0
// How many tokens of documents that are cut each rank gets, so that all ranks are full and have as
// much to do.
#pragma once

#include <cstdint>
#include <vector>

namespace meshloom::planner {

/// What attention to a document takes: its tokens, and the pairs of a query and a key.
struct DocumentWork {
  std::int64_t tokens = 0, area = 0;

  double area_of_token() const { return static_cast<double>(area) / static_cast<double>(tokens); }
};

/// What a rank still lacks.
struct RankRoom {
  std::int64_t tokens = 0;
  double area = 0.0;
};

/// So many tokens of a document are a rank's.
struct DocumentShare {
  std::size_t rank = 0;
  std::int64_t tokens = 0;

  bool operator==(const DocumentShare&) const = default;
};

/// Fills the ranks with documents of which the first have the largest area a token, and says who
/// gets how much of each; a rank is there once, and only with tokens. Ranks and documents have as
/// many tokens. A rank takes from the first and the last document that are left so much of each
/// that it gets the area that it lacks, as if all tokens of a document were alike; so documents are
/// cut in few pieces. The ranks whose lack is furthest from the mean come first, since for them
/// there has to be a choice.
std::vector<std::vector<DocumentShare>> fill_ranks(const std::vector<DocumentWork>& documents,
                                                   const std::vector<RankRoom>& ranks);

}  // namespace meshloom::planner
