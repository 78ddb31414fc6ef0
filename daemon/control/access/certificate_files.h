// SPDX-License-Identifier: Apache-2.0
// Files of certificates and keys, read and checked before anything uses them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace meshloom::control {

/// CertificateTexts have what the files hold, as text (PEM).
struct CertificateTexts {
  std::string certificate;  ///< the daemon's own, then those between it and its CA
  std::string key;
  std::string client_ca;  ///< of clients' certificates; empty: clients show none
};

/// Of the daemon's own certificate.
struct CertificateFacts {
  std::vector<std::string> names;  ///< subject alternative names: DNS names and addresses
  std::int64_t not_before = 0;     ///< seconds of Unix
  std::int64_t not_after = 0;
};

/// Reads the three files; `client_ca` may be empty. A key that others may read is refused. Throws
/// as base::InputFile, and FailedPrecondition (KEY_NOT_PRIVATE).
CertificateTexts read_certificate_files(const std::filesystem::path& certificate,
                                        const std::filesystem::path& key,
                                        const std::filesystem::path& client_ca);

/// Whether TLS can be served with them. Throws FailedPrecondition (CERTIFICATE_INVALID) for text
/// that holds no certificate, no key or no CA, a key under a passphrase, a key that does not fit,
/// and a certificate that has expired or is not valid yet at `now`.
CertificateFacts check_certificate(const CertificateTexts& texts, std::int64_t now);

/// Whether one of the names stands for a host, "*." standing for one label.
bool fits_host(const std::vector<std::string>& names, const std::string& host);

}  // namespace meshloom::control
