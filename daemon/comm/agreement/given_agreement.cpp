// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/agreement/given_agreement.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "daemon/comm/agreement/rank_values.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kTextBytes = 488;
/// So many ranks are told apart in an error.
constexpr int kMostNamed = 8;

struct Record {
  std::int64_t digest = 0;  ///< of the whole text
  std::int64_t failed = 0;
  std::int64_t length = 0;
  char text[kTextBytes] = {};

  std::string shown() const { return {text, static_cast<std::size_t>(length)}; }
  bool operator==(const Record& other) const {
    return digest == other.digest && failed == other.failed;
  }
};
static_assert(sizeof(Record) == 512);

/// `call` is named once for all errors.
Record record_of(const char* call, const Given& given) {
  Record record;
  record.failed = given.error.empty() ? 0 : 1;
  std::string text = given.error.empty() ? given.text : given.error;
  const std::string prefix = fmt::format("{}: ", call);
  if (record.failed != 0 && text.starts_with(prefix)) text.erase(0, prefix.size());
  record.digest = text_digest(text);
  record.length = static_cast<std::int64_t>(std::min(text.size(), kTextBytes));
  std::memcpy(record.text, text.data(), static_cast<std::size_t>(record.length));
  return record;
}

}  // namespace

void check_agreement(const char* call, const Given& mine, ProcessGroup& group) {
  constexpr std::size_t kWords = sizeof(Record) / sizeof(std::int64_t);
  const Record own = record_of(call, mine);
  std::vector<std::int64_t> words(kWords);
  std::memcpy(words.data(), &own, sizeof own);
  std::vector<Record> all(static_cast<std::size_t>(group.size()));
  const auto gathered = all_gather(group, words);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    std::memcpy(static_cast<void*>(&all[rank]), gathered[rank].data(), sizeof(Record));
  std::vector<std::string> errors, different;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].failed != 0)
      errors.push_back(fmt::format("on rank {}: {}", rank, all[rank].shown()));
    else if (rank == 0 || !(all[rank] == all[0]))
      different.push_back(fmt::format("rank {} gives {}", rank, all[rank].shown()));
  }
  if (errors.empty() && different.size() == 1) return;
  std::vector<std::string>& named = errors.empty() ? different : errors;
  const int more = static_cast<int>(named.size()) - kMostNamed;
  if (more > 0) {
    named.resize(kMostNamed);
    named.push_back(fmt::format("{} more ranks", more));
  }
  throw InvalidArgument(fmt::format("{}: {}", call, fmt::join(named, "; ")));
}

void check_same_text(ProcessGroup& group, const std::string& what, const std::string& text) {
  const auto all = all_gather(group, {text_digest(text)});
  std::vector<int> others;
  for (int rank = 0; rank < group.size(); ++rank)
    if (all[static_cast<std::size_t>(rank)] != all[0]) others.push_back(rank);
  if (others.empty()) return;
  const std::string ranks = fmt::format("{}", fmt::join(others, ", "));
  throw FailedPrecondition(fmt::format("{} of rank{} {} is not that of rank 0", what,
                                       others.size() > 1 ? "s" : "", ranks),
                           "PLAN_MISMATCH", {{"ranks", ranks}});
}

}  // namespace meshloom::comm
