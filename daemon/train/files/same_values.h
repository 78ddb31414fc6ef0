// SPDX-License-Identifier: Apache-2.0
// Whether two tensors of safetensors files hold the same values.
#pragma once

#include "daemon/train/files/safetensors.h"

namespace meshloom::train {

/// StoredTensor is one tensor of a file.
struct StoredTensor {
  std::shared_ptr<SafetensorsFile> file;
  const SafetensorsEntry* entry = nullptr;
};

/// Tells whether they have one shape and, as float32, equal elements (0 and -0 are, NaN is not but
/// where all bytes are the same). Both are read piece by piece, up to the first difference. What
/// was found of large tensors of this host's files is remembered while the files are not changed.
/// Any thread may call it. The dtypes are those that weights can have. Throws IoError.
bool same_values(const StoredTensor& a, const StoredTensor& b);

}  // namespace meshloom::train
