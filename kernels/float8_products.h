// SPDX-License-Identifier: Apache-2.0
// Float8Products: which backends take float8 operands of products as they are.
#pragma once

namespace meshloom::kernels {

/// A backend whose matmul takes float8 operands, with MatmulOptions::scales, is one of these, too:
/// by instructions of the device where it can, else it widens them itself. Of other backends the
/// caller widens them.
class Float8Products {
 public:
  virtual ~Float8Products() = default;
  /// False on a device without such instructions, where widening once is better.
  virtual bool takes_float8() const = 0;
};

}  // namespace meshloom::kernels
