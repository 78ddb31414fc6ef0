// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/head_lists.h"

namespace meshloom::planner {

HeadLists query_heads_of(std::int64_t heads, int neighbours) {
  HeadLists lists;
  std::int64_t next = 0;
  for (int u = 0; u < neighbours; ++u) {
    const std::int64_t share = heads / neighbours + (u < heads % neighbours ? 1 : 0);
    lists.emplace_back();
    for (std::int64_t h = next; h < next + share; ++h) lists.back().push_back(h);
    next += share;
  }
  return lists;
}

HeadLists key_heads_of(const HeadLists& query_heads, std::int64_t group) {
  HeadLists lists;
  for (const std::vector<std::int64_t>& queries : query_heads) {
    std::vector<std::int64_t> per_query, once;
    for (const std::int64_t h : queries) {
      per_query.push_back(h / group);
      if (once.empty() || once.back() != h / group) once.push_back(h / group);
    }
    const bool whole_groups = !queries.empty() && queries.front() % group == 0 &&
                              static_cast<std::int64_t>(queries.size()) % group == 0;
    lists.push_back(once.size() <= 1 || whole_groups ? once : per_query);
  }
  return lists;
}

}  // namespace meshloom::planner
