// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/checkpoint/digest.h"

#include <algorithm>

#include "daemon/train/data/mapped_file.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash.high64),
                     static_cast<std::uint64_t>(hash.low64));
}

}  // namespace

Digest::Digest() : state_(XXH3_createState()) {
  if (!state_) throw ResourceExhausted("out of memory for a digest");
  XXH3_128bits_reset(state_.get());
}

void Digest::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Digest::hex() const { return to_hex(XXH3_128bits_digest(state_.get())); }

std::string digest_of(std::span<const std::byte> bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string digest_of_file(const std::filesystem::path& path) {
  return digest_of(MappedFile::open(path)->bytes());
}

}  // namespace meshloom::train
