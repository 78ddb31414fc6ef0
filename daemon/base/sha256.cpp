// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

constexpr std::size_t kBytes = 32;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

Context new_context() {
  Context context(EVP_MD_CTX_new());
  check_internal(context != nullptr, "libcrypto gives no context for SHA-256");
  return context;
}

}  // namespace

struct Sha256::State {
  Context context = new_context();
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check_internal(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1,
                 "libcrypto has no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  check_internal(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1,
                 "libcrypto cannot go on with a SHA-256");
}

std::string Sha256::hex() const {
  const Context copy = new_context();
  std::array<unsigned char, kBytes> digest{};
  check_internal(EVP_MD_CTX_copy_ex(copy.get(), state_->context.get()) == 1 &&
                     EVP_DigestFinal_ex(copy.get(), digest.data(), nullptr) == 1,
                 "libcrypto cannot end a SHA-256");
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

bool is_sha256(std::string_view text) {
  return text.size() == 2 * kBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace meshloom::base
