// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/npy_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>

#include "daemon/base/stand_in.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr std::uint64_t kMostHeaderBytes = std::uint64_t{1} << 20;

[[noreturn]] void refuse_npy(const base::InputFile& file, const std::string& why) {
  base::refuse_stand_in(file, file.path().string());
  throw InvalidArgument(fmt::format("{} is no .npy file: {}", file.path().string(), why),
                        "NOT_TEXT", {{"path", file.path().string()}});
}

std::string npy_bytes(const base::InputFile& file, std::uint64_t offset, std::uint64_t count) {
  if (offset + count > file.size())
    refuse_npy(file, fmt::format("it has {} bytes, and {} of its header are missing", file.size(),
                                 offset + count - file.size()));
  std::string bytes(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// What stands behind 'KEY': in the header.
std::string_view npy_value(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

}  // namespace

NpyTokens::NpyTokens(const std::filesystem::path& path) : file_(path) {
  const std::string begin = npy_bytes(file_, 0, 10);
  if (!begin.starts_with(kNpyMagic)) refuse_npy(file_, "it does not begin as one");
  const auto byte = [](char c) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(c));
  };
  std::uint64_t length = byte(begin[8]) | byte(begin[9]) << 8;
  offset_ = 10;
  if (begin[6] != 1) {
    const std::string more = npy_bytes(file_, 10, 2);
    length |= byte(more[0]) << 16 | byte(more[1]) << 24;
    offset_ = 12;
  }
  if (length > kMostHeaderBytes) refuse_npy(file_, fmt::format("a header of {} bytes", length));
  read_header(npy_bytes(file_, offset_, length));
  offset_ += length;
}

void NpyTokens::read_header(const std::string& header) {
  const std::string_view type = npy_value(header, "descr");
  std::string_view shape = npy_value(header, "shape");
  if (!type.starts_with('\'') || !shape.starts_with('('))
    refuse_npy(file_, "its header has no descr of one type and no shape");
  dtype_ = std::string(type.substr(1, type.find('\'', 1) - 1));
  size_ = 1;
  shape = shape.substr(1, shape.find(')') - 1);
  while (!shape.empty()) {
    shape.remove_prefix(std::min(shape.find_first_not_of(" ,"), shape.size()));
    std::int64_t dim = 0;
    const auto read = std::from_chars(shape.data(), shape.data() + shape.size(), dim);
    if (read.ec != std::errc() || dim < 0 || __builtin_mul_overflow(size_, dim, &size_)) {
      if (shape.empty()) break;
      refuse_npy(file_, fmt::format("the shape ({})", shape));
    }
    shape.remove_prefix(static_cast<std::size_t>(read.ptr - shape.data()));
  }
  for (const int width : {1, 2, 4, 8})
    for (const char kind : {'u', 'i'})
      for (const char order : {'<', '|', '='})
        if (dtype_ == fmt::format("{}{}{}", order, kind, width)) {
          width_ = width;
          is_signed_ = kind == 'i';
        }
}

std::vector<std::int64_t> NpyTokens::read_first(std::int64_t count) const {
  const auto width = static_cast<std::size_t>(width_);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(count, size_)));
  const std::string bytes = npy_bytes(file_, offset_, numbers.size() * width);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * width, width);
    const int unused = 64 - 8 * width_;
    numbers[i] = is_signed_ ? static_cast<std::int64_t>(bits << unused) >> unused
                            : static_cast<std::int64_t>(bits);
  }
  return numbers;
}

}  // namespace meshloom::train
