// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/matmul_table.h"

#include <fmt/format.h>

#include "kernels/cuda/matmul/matmul_choices.h"

namespace meshloom::kernels::cuda {
namespace {

bool is_of(const MatmulChoice& choice, std::string_view device, const MatmulShape& shape) {
  return choice.device == device && choice.operands == shape.operands &&
         choice.result == shape.result && choice.m == shape.m && choice.n == shape.n &&
         choice.k == shape.k && choice.batch == shape.batch &&
         choice.a_transposed == shape.a.transposed && choice.b_transposed == shape.b.transposed &&
         choice.epilogue == shape.epilogue;
}

const char* dtype_source(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return "DType::kBFloat16";
    case DType::kFloat16: return "DType::kFloat16";
    case DType::kFloat64: return "DType::kFloat64";
    case DType::kFloat8E4M3: return "DType::kFloat8E4M3";
    case DType::kFloat8E5M2: return "DType::kFloat8E5M2";
    default: return "DType::kFloat32";
  }
}

}  // namespace

int matmul_table_version() { return kMatmulTableVersion; }

int choose_matmul_kernel(std::string_view device, std::string_view libraries,
                         const MatmulShape& shape) {
  // Another release lists other kernels.
  if (libraries != kMatmulTableLibraries) return 0;
  for (const MatmulChoice& choice : kMatmulChoices)
    if (is_of(choice, device, shape)) return choice.kernel;
  return 0;
}

std::string matmul_entry(std::string_view device, const MatmulShape& shape, int kernel) {
  return fmt::format(
      "MatmulChoice{{\"{}\", {}, {}, {}, {}, {}, {}, {}, {}, static_cast<LibraryEpilogue>({}), "
      "{}}}",
      device, dtype_source(shape.operands), dtype_source(shape.result), shape.m, shape.n, shape.k,
      shape.batch, shape.a.transposed, shape.b.transposed, static_cast<int>(shape.epilogue),
      kernel);
}

std::string matmul_table_source(std::string_view libraries, std::span<const std::string> entries) {
  std::string lines;
  for (const std::string& entry : entries) lines += fmt::format("    {},\n", entry);
  return fmt::format(
      "// SPDX-License-Identifier: Apache-2.0\n"
      "// The entries of the table of cuBLASLt's kernels. `meshloom-bench tune --device cuda` "
      "writes "
      "it.\n"
      "#pragma once\n\n#include <array>\n\n#include \"kernels/cuda/matmul/matmul_table.h\"\n\n"
      "namespace meshloom::kernels::cuda {{\n\n"
      "inline constexpr int kMatmulTableVersion = {};\n"
      "/// With which the entries were measured.\n"
      "inline constexpr std::string_view kMatmulTableLibraries = \"{}\";\n"
      "// clang-format off\n"
      "inline constexpr std::array<MatmulChoice, {}> kMatmulChoices{{\n{}}};\n"
      "// clang-format on\n\n"
      "}}  // namespace meshloom::kernels::cuda\n",
      kMatmulTableVersion + 1, libraries, entries.size(), lines);
}

}  // namespace meshloom::kernels::cuda
