// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: JSON text that names every tensor's dtype, shape and place.
//
// A file is: u64 little-endian header length, the header, then the data of all tensors without
// gaps.
//   {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets":
//   [0, 24]}, ...}
// Offsets count from the end of the header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/base/shape.h"

namespace meshloom::train {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 16u << 20;  ///< bytes
inline constexpr std::size_t kMaxSafetensorsEntries = 1'000'000;
inline constexpr std::size_t kMaxSafetensorsName = 256;  ///< bytes

/// SafetensorsEntry is one tensor of a file: its data are bytes [begin, end) of the data part.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in order of their data
  SafetensorsMetadata metadata;
};

/// Reads a header and checks every rule of the format: an object of nothing but tensors and
/// string-valued metadata, no duplicate keys, names of at most 256 printable ASCII bytes, known
/// dtypes, sizes that follow from shapes without overflow, and data that cover [0, data_bytes)
/// once, without holes. Empty tensors may share an offset. Takes time and memory linear in the
/// text. Throws InvalidArgument (reason MALFORMED_SAFETENSORS) that begins with `file` and names
/// the tensor.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& file);

/// Orders `entries` (by element size, largest first, then by name, so that all data are aligned),
/// sets their offsets, and returns the file's first bytes: length and header, padded to a multiple
/// of 8. Equal input gives equal bytes. Throws InvalidArgument for names or shapes that no reader
/// would accept.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const SafetensorsMetadata& metadata);

}  // namespace meshloom::train
