// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "daemon/train/files/safetensors_sax.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

[[noreturn]] void fail(const std::string& file, const std::string& what,
                       const std::string& tensor = {}) {
  Error::Metadata metadata{{"file", file}};
  if (!tensor.empty()) metadata["tensor"] = tensor;
  throw InvalidArgument(fmt::format("{}: {}", file, what), "MALFORMED_SAFETENSORS",
                        std::move(metadata));
}

bool is_printable_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxSafetensorsName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

/// Bytes of a tensor, or nullopt if the product overflows 63 bits.
std::optional<std::uint64_t> checked_bytes(const Shape& shape, DType dtype) {
  std::int64_t product = static_cast<std::int64_t>(dtype_size(dtype));
  bool overflow = false;
  for (std::int64_t size : shape) {
    if (size == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(product, size, &product);
  }
  if (overflow) return std::nullopt;
  return static_cast<std::uint64_t>(product);
}

void check_names(const std::string& file, const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail(file, fmt::format("header: duplicate key '{}'", *twice), std::string(*twice));
}

void check_sizes(const std::string& file, const std::vector<SafetensorsEntry>& entries,
                 std::uint64_t data_bytes) {
  for (const SafetensorsEntry& entry : entries) {
    if (entry.end < entry.begin)
      fail(file,
           fmt::format("offset: tensor '{}' ends at {} before it begins at {}", entry.name,
                       entry.end, entry.begin),
           entry.name);
    if (entry.end > data_bytes)
      fail(file,
           fmt::format(
               "offset: tensor '{}' ends at {} past the {} bytes of data that the file holds",
               entry.name, entry.end, data_bytes),
           entry.name);
    const auto bytes = checked_bytes(entry.shape, entry.dtype);
    if (!bytes)
      fail(file,
           fmt::format("tensor '{}': the size of shape {} overflows 63 bits", entry.name,
                       to_string(entry.shape)),
           entry.name);
    if (*bytes != entry.end - entry.begin)
      fail(
          file,
          fmt::format("tensor '{}': shape {} of {} has a size of {} bytes, but its offsets span {}",
                      entry.name, to_string(entry.shape), dtype_safetensors_name(entry.dtype),
                      *bytes, entry.end - entry.begin),
          entry.name);
  }
}

/// Entries are in order of their data.
void check_coverage(const std::string& file, const std::vector<SafetensorsEntry>& entries,
                    std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  const SafetensorsEntry* before = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered)
      fail(file,
           fmt::format(
               "overlap: tensor '{}' begins at offset {} inside tensor '{}', which ends at {}",
               entry.name, entry.begin, before->name, before->end),
           entry.name);
    if (entry.begin > covered)
      fail(file,
           fmt::format("offset: bytes {} to {} before tensor '{}' belong to no tensor", covered,
                       entry.begin, entry.name),
           entry.name);
    covered = entry.end;
    before = &entry;
  }
  if (covered != data_bytes)
    fail(file, fmt::format("offset: the tensors end at {}, but the file holds {} bytes of data",
                           covered, data_bytes));
}

/// Wide elements first, so that every tensor is aligned; then by name.
void place_entries(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto key = [](const SafetensorsEntry& e) { return dtype_size(e.dtype); };
    return key(a) != key(b) ? key(a) > key(b) : a.name < b.name;
  });
  std::uint64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    check(is_printable_name(entry.name) && entry.name != "__metadata__",
          "safetensors: '{}' cannot name a tensor: 1 to {} printable ASCII bytes are expected",
          entry.name, kMaxSafetensorsName);
    const auto bytes = checked_bytes(entry.shape, entry.dtype);
    check(bytes.has_value(), "safetensors: tensor '{}': the size of shape {} overflows", entry.name,
          entry.shape);
    entry.begin = offset;
    entry.end = offset += *bytes;
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& file) {
  if (text.size() > kMaxSafetensorsHeader)
    fail(file, fmt::format("header: {} bytes, more than the {} that are accepted", text.size(),
                           kMaxSafetensorsHeader));
  if (text.empty() || text.front() != '{') fail(file, "header: does not begin with '{'");

  // The parser takes a zero byte for the end and would not look at what hides behind it.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos)
    fail(file, fmt::format("header: not valid JSON at byte {}", zero));

  SafetensorsHeader header;
  SafetensorsSax sax(header);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &sax))
    fail(file, "header: " + sax.error(), sax.tensor());
  for (const SafetensorsEntry& entry : header.entries) {
    if (!is_printable_name(entry.name))
      fail(file,
           fmt::format("header: a name of {} bytes is empty, longer than {} or not printable ASCII",
                       entry.name.size(), kMaxSafetensorsName));
  }
  check_names(file, header.entries);
  check_sizes(file, header.entries, data_bytes);
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_coverage(file, header.entries, data_bytes);
  return header;
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const SafetensorsMetadata& metadata) {
  check(entries.size() <= kMaxSafetensorsEntries,
        "safetensors: {} tensors, at most {} are possible", entries.size(), kMaxSafetensorsEntries);
  place_entries(entries);
  check_names("safetensors", entries);

  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  for (const SafetensorsEntry& entry : entries) {
    if (json.size() > 1) json += ',';
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        nlohmann::json(entry.name).dump(), dtype_safetensors_name(entry.dtype),
                        fmt::join(entry.shape, ","), entry.begin, entry.end);
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  check(json.size() <= kMaxSafetensorsHeader, "safetensors: a header of {} bytes is more than {}",
        json.size(), kMaxSafetensorsHeader);

  static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");
  const std::uint64_t length = json.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + json;
}

}  // namespace meshloom::train
