// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/tokenizer_cache.h"

#include <algorithm>
#include <utility>

#include "daemon/base/file_stamp.h"

namespace meshloom::text {
namespace {

/// The folder, and sizes and times of its files.
std::string key_of(const std::filesystem::path& folder) {
  std::string key = folder.string();
  std::vector<std::filesystem::path> files = carried_files(folder);
  files.push_back(folder / "config.json");  // it may tell the class and the end of documents
  for (const std::filesystem::path& file : files)
    if (const auto stamp = base::file_stamp(file))
      key += "|" + file.filename().string() + ":" + *stamp;
  return key;
}

}  // namespace

FolderTokenizer TokenizerCache::open(const std::filesystem::path& folder, const StopCheck& stop) {
  std::string key = key_of(folder);
  const auto find = [&] {
    return std::find_if(kept_.begin(), kept_.end(),
                        [&](const Kept& kept) { return kept.key == key; });
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = find(); found != kept_.end()) {
      std::rotate(kept_.begin(), found, found + 1);
      return kept_.front().tokenizer;
    }
  }
  FolderTokenizer opened = open_tokenizer(folder, stop);
  const std::lock_guard lock(mutex_);
  if (find() == kept_.end()) kept_.push_front({std::move(key), opened});
  if (kept_.size() > kKept) kept_.pop_back();
  return opened;
}

}  // namespace meshloom::text
