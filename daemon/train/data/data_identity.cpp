// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/data_identity.h"

#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <vector>

#include "daemon/base/utf8.h"
#include "daemon/train/checkpoint/digest.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::uint64_t kMostWindow = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastWindow = std::uint64_t{4} << 10;
/// First (or last) bytes of all files together, so that a folder of very many stays quick.
constexpr std::uint64_t kAllWindows = std::uint64_t{128} << 20;
constexpr int kListedFiles = 64;
constexpr std::size_t kShownDifferences = 4;

using Files = std::map<std::string, const v1::DataFile*>;

Files by_name(const v1::DataIdentity& identity) {
  Files files;
  for (const v1::DataFile& file : identity.files()) files[file.name()] = &file;
  return files;
}

/// Of the files that both lists name, and of all if the lists are whole.
std::vector<std::string> changed_files(const v1::DataIdentity& before,
                                       const v1::DataIdentity& now) {
  const Files old_files = by_name(before), new_files = by_name(now);
  const bool whole =
      before.files_size() == before.file_count() && now.files_size() == now.file_count();
  std::vector<std::string> changes;
  for (const auto& [name, old_file] : old_files) {
    const auto found = new_files.find(name);
    if (found == new_files.end()) {
      if (whole) changes.push_back(fmt::format("{} ({} bytes) is gone", name, old_file->bytes()));
    } else if (found->second->bytes() != old_file->bytes()) {
      changes.push_back(fmt::format("{} has {} bytes, it had {}", name, found->second->bytes(),
                                    old_file->bytes()));
    } else if (found->second->digest() != old_file->digest()) {
      changes.push_back(
          fmt::format("{} has other contents in its {} bytes", name, old_file->bytes()));
    }
  }
  for (const auto& [name, file] : new_files)
    if (whole && !old_files.contains(name))
      changes.push_back(fmt::format("{} ({} bytes) is new", name, file->bytes()));
  return changes;
}

}  // namespace

v1::DataIdentity identify(const TokenStream& stream) {
  v1::DataIdentity identity;
  const auto& parts = stream.files();
  const std::uint64_t window = std::clamp(kAllWindows / parts.size(), kLeastWindow, kMostWindow);
  Digest all;
  std::int64_t bytes = 0;
  for (const auto& [name, file] : parts) {
    v1::DataFile item;
    item.set_name(base::printable_text(name, std::string::npos, false));
    item.set_bytes(static_cast<std::int64_t>(file->size()));
    item.set_digest(digest_of_ends(*file, window));
    bytes += item.bytes();
    const std::string line = fmt::format("{}\n{}\n{}\n", item.name(), item.bytes(), item.digest());
    all.update(std::as_bytes(std::span(line)));
    if (identity.files_size() < kListedFiles) *identity.add_files() = std::move(item);
  }
  identity.set_tokens(stream.size());
  identity.set_bytes(bytes);
  identity.set_file_count(static_cast<std::int64_t>(parts.size()));
  identity.set_digest(all.hex());
  return identity;
}

std::string difference(const v1::DataIdentity& before, const v1::DataIdentity& now) {
  const bool counts = before.tokens() == now.tokens() && before.bytes() == now.bytes() &&
                      before.file_count() == now.file_count();
  if (counts && before.digest() == now.digest()) return {};
  std::vector<std::string> changes = changed_files(before, now);
  if (changes.size() > kShownDifferences) {
    const std::size_t more = changes.size() - kShownDifferences;
    changes.resize(kShownDifferences);
    changes.push_back(fmt::format("{} more files differ", more));
  }
  if (changes.empty() && counts) changes.push_back("files that are not listed have other contents");
  if (!counts)
    changes.push_back(fmt::format("{} tokens in {} files of {} bytes, there were {} in {} of {}",
                                  now.tokens(), now.file_count(), now.bytes(), before.tokens(),
                                  before.file_count(), before.bytes()));
  return fmt::format("{}", fmt::join(changes, "; "));
}

std::string check_same_data(const v1::DataIdentity& before, const v1::DataIdentity& now,
                            bool allow_changed, const std::string& whose) {
  const std::string what = difference(before, now);
  if (what.empty()) return {};
  const auto text = fmt::format("the data are not those of {}: {}", whose, what);
  if (allow_changed) return text + "; data.allow_changed goes on with them";
  throw FailedPrecondition(text + "; data.allow_changed: true would go on with them",
                           "DATA_CHANGED",
                           {{"difference", what},
                            {"tokens_before", std::to_string(before.tokens())},
                            {"tokens", std::to_string(now.tokens())}});
}

std::string to_json_text(const v1::DataIdentity& identity) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto status = google::protobuf::util::MessageToJsonString(identity, &text, options);
  check_internal(status.ok(), "identity of data cannot be written as JSON: {}", status.ToString());
  return text;
}

v1::DataIdentity data_identity_from_json(const std::string& text) {
  v1::DataIdentity identity;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &identity, options);
  if (!status.ok())
    throw DataLoss(fmt::format("a checkpoint's identity of its data: {}", status.ToString()),
                   "CHECKPOINT_DAMAGED");
  return identity;
}

}  // namespace meshloom::train
