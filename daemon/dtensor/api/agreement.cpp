// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/agreement.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

constexpr std::size_t kTextBytes = 488;
/// So many ranks are told apart in an error.
constexpr int kMostNamed = 8;

struct Record {
  std::uint64_t digest = 0;  ///< of the whole text
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
  record.digest = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char c : text)
    record.digest = (record.digest ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  record.length = static_cast<std::int64_t>(std::min(text.size(), kTextBytes));
  std::memcpy(record.text, text.data(), static_cast<std::size_t>(record.length));
  return record;
}

}  // namespace

void check_agreement(const char* call, const Given& mine, comm::ProcessGroup& group) {
  Record own = record_of(call, mine);
  std::vector<Record> all(static_cast<std::size_t>(group.size()), own);
  if (group.size() > 1) {
    constexpr auto kWords = static_cast<std::int64_t>(sizeof(Record) / sizeof(std::int64_t));
    const auto view_of = [&](void* memory) { return make_view(memory, DType::kInt64, {kWords}); };
    std::vector<TensorView> views;
    views.reserve(all.size());
    for (Record& record : all) views.push_back(view_of(&record));
    group.all_gather(views, view_of(&own))->wait_host();
  }
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

}  // namespace meshloom::dtensor
