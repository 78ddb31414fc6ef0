// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/dtype.h"

#include <array>

namespace meshloom {
namespace {

struct DTypeRow {
  DType dtype;
  std::size_t size;
  const char* name;
  const char* safetensors;
  bool floating;
};

// In the order of the enum.
constexpr std::array<DTypeRow, 10> kRows{{
    {DType::kFloat32, 4, "float32", "F32", true},
    {DType::kBFloat16, 2, "bfloat16", "BF16", true},
    {DType::kFloat16, 2, "float16", "F16", true},
    {DType::kFloat64, 8, "float64", "F64", true},
    {DType::kInt64, 8, "int64", "I64", false},
    {DType::kInt32, 4, "int32", "I32", false},
    {DType::kUInt8, 1, "uint8", "U8", false},
    {DType::kBool, 1, "bool", "BOOL", false},
    {DType::kFloat8E4M3, 1, "float8_e4m3", "F8_E4M3", true},
    {DType::kFloat8E5M2, 1, "float8_e5m2", "F8_E5M2", true},
}};

const DTypeRow& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t dtype_size(DType dtype) { return row(dtype).size; }
const char* dtype_name(DType dtype) { return row(dtype).name; }
const char* dtype_safetensors_name(DType dtype) { return row(dtype).safetensors; }
bool dtype_is_floating(DType dtype) { return row(dtype).floating; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& r : kRows)
    if (name == r.name) return r.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  for (const DTypeRow& r : kRows)
    if (name == r.safetensors) return r.dtype;
  return std::nullopt;
}

}  // namespace meshloom
