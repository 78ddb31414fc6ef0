// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/diagnosis/abort_record.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

namespace meshloom::comm {
namespace {

// A writer needs microseconds; one that was killed between claim and record never comes.
constexpr auto kLongestWrite = std::chrono::milliseconds(20);
constexpr std::size_t kLongestField = 600;
constexpr std::size_t kLongestText = 1900;

/// Numbers, then texts behind their lengths.
std::string pack(const AbortRecord& record) {
  std::string out = fmt::format("{} {} {} {} ", record.rank, static_cast<int>(record.kind),
                                record.sequence, record.group_id);
  const std::string text = record.text.substr(0, kLongestText);
  for (const std::string* field :
       {&record.reason, &record.collective, &record.group, &record.missing, &record.root_cause}) {
    // All five together with the text fit, whatever they are.
    const std::string part =
        field->substr(0, field == &record.root_cause ? kLongestField : kLongestField / 2);
    out += fmt::format("{} {}", part.size(), part);
  }
  return out + fmt::format("{} {}", text.size(), text);
}

std::optional<AbortRecord> unpack(const std::string& packed) {
  std::istringstream in(packed);
  AbortRecord record;
  int kind = 0;
  in >> record.rank >> kind >> record.sequence >> record.group_id;
  record.kind = static_cast<ErrorKind>(kind);
  for (std::string* field : {&record.reason, &record.collective, &record.group, &record.missing,
                             &record.root_cause, &record.text}) {
    std::size_t size = 0;
    in >> size;
    in.get();
    if (!in || size > packed.size()) return std::nullopt;
    field->resize(size);
    in.read(field->data(), static_cast<std::streamsize>(size));
  }
  if (!in) return std::nullopt;
  return record;
}

}  // namespace

bool AbortBoard::claim(std::uint64_t epoch, const AbortRecord& mine) {
  std::uint64_t seen = claimed_.load();
  while (seen < epoch + 1)
    if (claimed_.compare_exchange_weak(seen, epoch + 1)) {
      const std::string packed = pack(mine);
      std::vector<std::uint64_t> words((packed.size() + 7) / 8);
      std::memcpy(words.data(), packed.data(), packed.size());
      for (std::size_t i = 0; i < words.size(); ++i)
        words_[i].store(words[i], std::memory_order_release);
      bytes_.store(packed.size(), std::memory_order_relaxed);
      written_.store(epoch + 1, std::memory_order_release);
      return true;
    }
  const auto until = std::chrono::steady_clock::now() + kLongestWrite;
  while (!written(epoch) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return false;
}

void AbortBoard::wait_until_told(std::uint64_t epoch, std::chrono::milliseconds longest) const {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (told_.load(std::memory_order_acquire) < epoch + 1 &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::optional<AbortRecord> AbortBoard::read(std::uint64_t epoch) const {
  if (!written(epoch)) return std::nullopt;
  return newest();
}

std::optional<AbortRecord> AbortBoard::newest() const {
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  if (written == 0) return std::nullopt;
  const std::size_t bytes = std::min<std::size_t>(bytes_.load(std::memory_order_relaxed), kBytes);
  std::vector<std::uint64_t> words((bytes + 7) / 8);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = words_[i].load(std::memory_order_acquire);
  // That of a later epoch is being written over it.
  if (claimed_.load(std::memory_order_relaxed) != written) return std::nullopt;
  return unpack(std::string(reinterpret_cast<const char*>(words.data()), bytes));
}

}  // namespace meshloom::comm
