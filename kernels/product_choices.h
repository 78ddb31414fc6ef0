// SPDX-License-Identifier: Apache-2.0
// ProductChoices: the kernels of a library among which a backend's table chooses, for who tunes it.
#pragma once

#include <span>
#include <string>

#include "kernels/backend.h"

namespace meshloom::kernels {

/// A backend whose products a library has several kernels for is one of these, too. For the thread
/// that computes. Products are as Backend::matmul takes them, none of their sizes is 0.
class ProductChoices {
 public:
  virtual ~ProductChoices() = default;
  /// How many deterministic kernels the library has for a product. The first is what it advises.
  virtual int count_choices(const TensorView& y, const TensorView& a, const TensorView& b,
                            const MatmulOptions&) = 0;
  /// Does what matmul does, by kernel `choice`, whatever the table says.
  virtual void matmul_by(int choice, const KernelContext&, const TensorView& y, const TensorView& a,
                         const TensorView& b, const MatmulOptions&) = 0;
  /// Returns the entry of the table that gives a product the kernel `choice`.
  virtual std::string choice_entry(int choice, const TensorView& y, const TensorView& a,
                                   const TensorView& b, const MatmulOptions&) = 0;
  /// Returns the source file that holds such entries, as the table's next version: it takes the
  /// place of the file that `choice_file` names in the source folder.
  virtual std::string choice_table(std::span<const std::string> entries) = 0;
  virtual std::string choice_file() const = 0;
};

}  // namespace meshloom::kernels
