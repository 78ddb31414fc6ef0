// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/digest.h"

#include <algorithm>
#include <vector>

#include "daemon/base/input_file.h"
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

std::string digest_of_ends(const base::InputFile& file, std::uint64_t window) {
  Digest digest;
  std::vector<std::byte> bytes(std::min(window, file.size()));
  file.read(0, bytes);
  digest.update(bytes);
  const std::uint64_t tail = std::max(file.size() - bytes.size(), bytes.size());
  bytes.resize(file.size() - tail);
  file.read(tail, bytes);
  digest.update(bytes);
  return digest.hex();
}

std::string digest_of_file(const std::filesystem::path& path, const std::function<void()>& go_on) {
  // Pieces that stay in the cache between the read and the digest.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  const base::InputFile file(path);
  Digest digest;
  std::vector<std::byte> piece(std::min(kPiece, file.size()));
  for (std::uint64_t at = 0; at < file.size(); at += kPiece) {
    if (go_on) go_on();
    const std::span part = std::span(piece).first(std::min(kPiece, file.size() - at));
    file.read(at, part);
    digest.update(part);
  }
  return digest.hex();
}

}  // namespace meshloom::train
