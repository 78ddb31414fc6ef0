// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/same_values.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "daemon/base/file_stamp.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"

namespace meshloom::train {
namespace {

constexpr std::uint64_t kPieceElements = std::uint64_t{256} << 10;
constexpr std::uint64_t kLargeElements = std::uint64_t{1} << 20;

template <typename T>
void widen(std::span<const std::byte> bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    out[i] = static_cast<float>(value);
  }
}

void to_floats(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  switch (dtype) {
    case DType::kFloat32: return widen<float>(bytes, out);
    case DType::kFloat64: return widen<double>(bytes, out);
    case DType::kBFloat16: return widen<bfloat16>(bytes, out);
    case DType::kFloat16: return widen<float16>(bytes, out);
    default: check_internal(false, "weights of {} are compared", dtype_name(dtype));
  }
}

/// Elements of a tensor, as they lie in its file.
std::vector<std::byte> read_elements(const StoredTensor& tensor, std::uint64_t at,
                                     std::uint64_t count) {
  const std::uint64_t width = dtype_size(tensor.entry->dtype);
  std::vector<std::byte> bytes(count * width);
  tensor.file->read(*tensor.entry, at * width, bytes);
  return bytes;
}

bool compare(const StoredTensor& a, const StoredTensor& b) {
  const auto elements = static_cast<std::uint64_t>(numel(a.entry->shape));
  std::vector<float> values_a, values_b;
  for (std::uint64_t at = 0; at < elements; at += kPieceElements) {
    const std::uint64_t count = std::min(kPieceElements, elements - at);
    const auto bytes_a = read_elements(a, at, count), bytes_b = read_elements(b, at, count);
    if (a.entry->dtype == b.entry->dtype && bytes_a == bytes_b) continue;
    values_a.resize(count);
    values_b.resize(count);
    to_floats(a.entry->dtype, bytes_a, values_a);
    to_floats(b.entry->dtype, bytes_b, values_b);
    if (values_a != values_b) return false;
  }
  return true;
}

/// What tells the contents of two tensors from others; nothing for those of another host.
std::optional<std::string> contents_key(const StoredTensor& a, const StoredTensor& b) {
  std::string key;
  for (const StoredTensor* tensor : {&a, &b}) {
    const base::InputFile& input = tensor->file->input();
    if (input.is_remote()) return std::nullopt;
    const auto stamp = base::file_stamp(input.path());
    // Another file may lie there by now than the one that is open.
    if (!stamp || !stamp->starts_with(fmt::format("{}:{}:", input.inode(), input.size())))
      return std::nullopt;
    key += fmt::format("{}\n{}\n{}\n", input.path().string(), *stamp, tensor->entry->name);
  }
  return key;
}

/// Answers of a moment ago. A model is looked at several times from its submission to its first
/// step, and every look would read gigabytes; the answer is a function of the files alone.
class Answers {
 public:
  std::optional<bool> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, same] : kept_)
      if (known == key) return same;
    return std::nullopt;
  }
  void keep(const std::string& key, bool same) {
    constexpr std::size_t kMostKept = 16;
    const std::lock_guard lock(mutex_);
    kept_.emplace_front(key, same);
    if (kept_.size() > kMostKept) kept_.pop_back();
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<std::string, bool>> kept_;  ///< the newest comes first
};

}  // namespace

bool same_values(const StoredTensor& a, const StoredTensor& b) {
  if (a.entry->shape != b.entry->shape) return false;
  if (numel(a.entry->shape) < static_cast<std::int64_t>(kLargeElements)) return compare(a, b);
  static Answers answers;
  // Taken before anything is read: what is written meanwhile belongs to another key.
  const auto key = contents_key(a, b);
  if (key)
    if (const auto known = answers.find(*key)) return *known;
  const bool same = compare(a, b);
  if (key) answers.keep(*key, same);
  return same;
}

}  // namespace meshloom::train
