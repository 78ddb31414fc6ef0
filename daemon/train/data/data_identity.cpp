// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/data_identity.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "daemon/base/utf8.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/message_json.h"
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

/// Fed file by file.
class IdentityBuilder {
 public:
  explicit IdentityBuilder(std::size_t files)
      : window_(std::clamp(kAllWindows / files, kLeastWindow, kMostWindow)) {}

  void add(const std::string& name, const base::InputFile& file) {
    v1::DataFile item;
    item.set_name(base::printable_text(name, std::string::npos, false));
    item.set_bytes(static_cast<std::int64_t>(file.size()));
    item.set_digest(digest_of_ends(file, window_));
    const std::string line = fmt::format("{}\n{}\n{}\n", item.name(), item.bytes(), item.digest());
    all_.update(std::as_bytes(std::span(line)));
    identity_.set_bytes(identity_.bytes() + item.bytes());
    identity_.set_file_count(identity_.file_count() + 1);
    if (identity_.files_size() < kListedFiles) *identity_.add_files() = std::move(item);
  }
  v1::DataIdentity finish() {
    identity_.set_digest(all_.hex());
    return std::move(identity_);
  }

 private:
  std::uint64_t window_;
  Digest all_;
  v1::DataIdentity identity_;
};

/// "100 tokens in 2 files of 50 bytes"; without the tokens where they are not known.
std::string amount(const v1::DataIdentity& identity, bool tokens_known) {
  const std::string files =
      fmt::format("{} files of {} bytes", identity.file_count(), identity.bytes());
  return tokens_known ? fmt::format("{} tokens in {}", identity.tokens(), files) : files;
}

/// Enough to tell two apart.
std::string shown_digest(const std::string& digest) {
  return digest.empty() ? "none" : digest.substr(0, 12);
}

}  // namespace

v1::DataIdentity identify(const TokenStream& stream) {
  const auto parts = stream.files();
  IdentityBuilder builder(parts.size());
  for (const auto& [name, file] : parts) builder.add(name, *file);
  v1::DataIdentity identity = builder.finish();
  identity.set_tokens(stream.size());
  return identity;
}

v1::DataIdentity identify_text(const DataFiles& text, const std::string& tokenizer,
                               base::Disk& disk) {
  IdentityBuilder builder(text.files.size());
  for (const auto& path : text.files)
    if (const base::InputFile file = disk.open(path); file.size() > 0)
      builder.add(text.name_of(path), file);
  v1::DataIdentity identity = builder.finish();
  check(identity.file_count() > 0, "data {} is empty", text.files.front().string());
  identity.set_tokenizer(tokenizer);
  return identity;
}

std::string difference(const v1::DataIdentity& before, const v1::DataIdentity& now) {
  // Of text that is tokenized later none are known yet.
  const bool tokens_known = before.tokens() > 0 && now.tokens() > 0;
  const bool counts = (before.tokens() == now.tokens() || !tokens_known) &&
                      before.bytes() == now.bytes() && before.file_count() == now.file_count();
  const bool same_tokenizer = before.tokenizer() == now.tokenizer();
  if (counts && before.digest() == now.digest() && same_tokenizer) return {};
  std::vector<std::string> changes = changed_files(before, now);
  if (changes.size() > kShownDifferences) {
    const std::size_t more = changes.size() - kShownDifferences;
    changes.resize(kShownDifferences);
    changes.push_back(fmt::format("{} more files differ", more));
  }
  if (!same_tokenizer)
    changes.push_back(fmt::format(
        "the tokenizer (or field, append_eos, add_special_tokens, chat) is {}, it was {}",
        shown_digest(now.tokenizer()), shown_digest(before.tokenizer())));
  if (changes.empty() && counts) changes.push_back("files that are not listed have other contents");
  if (!counts)
    changes.push_back(
        fmt::format("{}, there were {}", amount(now, tokens_known), amount(before, tokens_known)));
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

std::string to_json_text(const v1::DataIdentity& identity) { return message_to_json(identity); }

v1::DataIdentity data_identity_from_json(const std::string& text) {
  v1::DataIdentity identity;
  if (const std::string wrong = message_from_json(text, &identity); !wrong.empty())
    throw DataLoss(fmt::format("a checkpoint's identity of its data: {}", wrong),
                   "CHECKPOINT_DAMAGED");
  return identity;
}

}  // namespace meshloom::train
