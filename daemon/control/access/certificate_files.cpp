// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/certificate_files.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <strings.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<&BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<&EVP_PKEY_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<&GENERAL_NAMES_free>>;

[[noreturn]] void refuse(const std::string& why) {
  ERR_clear_error();
  throw FailedPrecondition(why, "CERTIFICATE_INVALID");
}

Bio reader_of(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// A key under a passphrase is read by nobody who could be asked for it.
int no_passphrase(char*, int, int, void*) { return 0; }

std::int64_t seconds_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return static_cast<std::int64_t>(::timegm(&parts));
}

std::string date_of(std::int64_t seconds) {
  return base::to_rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(seconds)));
}

std::string address_text(const ASN1_OCTET_STRING& bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = bytes.length == 4 ? AF_INET : AF_INET6;
  if (bytes.length != 4 && bytes.length != 16) return "";
  return ::inet_ntop(family, bytes.data, text, sizeof text) != nullptr ? text : "";
}

std::vector<std::string> names_of(X509& certificate) {
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> texts;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
    if (name.type == GEN_DNS)
      texts.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.dNSName)),
                         static_cast<std::size_t>(ASN1_STRING_length(name.d.dNSName)));
    else if (name.type == GEN_IPADD)
      texts.push_back(address_text(*name.d.iPAddress));
  }
  return texts;
}

}  // namespace

CertificateTexts read_certificate_files(const fs::path& certificate, const fs::path& key,
                                        const fs::path& client_ca) {
  struct stat status {};
  if (::stat(key.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 077) != 0)
    throw FailedPrecondition(
        fmt::format("--tls-key {}: its mode is {:04o}, so that others may read it; chmod 600 it",
                    base::shown(key), status.st_mode & 07777),
        "KEY_NOT_PRIVATE");
  return {base::InputFile(certificate).read_text(kMostBytes),
          base::InputFile(key).read_text(kMostBytes),
          client_ca.empty() ? "" : base::InputFile(client_ca).read_text(kMostBytes)};
}

CertificateFacts check_certificate(const CertificateTexts& texts, std::int64_t now) {
  const Certificate certificate(
      PEM_read_bio_X509(reader_of(texts.certificate).get(), nullptr, no_passphrase, nullptr));
  if (!certificate) refuse("--tls-cert: holds no certificate (PEM)");
  const Key key(
      PEM_read_bio_PrivateKey(reader_of(texts.key).get(), nullptr, no_passphrase, nullptr));
  if (!key) refuse("--tls-key: holds no key (PEM) that is read without a passphrase");
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    refuse("--tls-key: the key is not that of the certificate of --tls-cert");
  if (!texts.client_ca.empty() && !Certificate(PEM_read_bio_X509(reader_of(texts.client_ca).get(),
                                                                 nullptr, no_passphrase, nullptr)))
    refuse("--tls-client-ca: holds no certificate (PEM)");
  CertificateFacts facts{names_of(*certificate), seconds_of(X509_get0_notBefore(certificate.get())),
                         seconds_of(X509_get0_notAfter(certificate.get()))};
  if (now >= facts.not_after)
    refuse(fmt::format("--tls-cert: the certificate has expired on {}", date_of(facts.not_after)));
  if (now < facts.not_before)
    refuse(fmt::format("--tls-cert: the certificate is not valid before {}",
                       date_of(facts.not_before)));
  return facts;
}

bool fits_host(const std::vector<std::string>& names, const std::string& host) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    if (!name.starts_with("*.")) return ::strcasecmp(name.c_str(), host.c_str()) == 0;
    const auto dot = host.find('.');
    return dot != std::string::npos && dot > 0 &&
           ::strcasecmp(name.c_str() + 1, host.c_str() + dot) == 0;
  });
}

}  // namespace meshloom::control
