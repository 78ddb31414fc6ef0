// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/certificate_watch.h"

#include <ctime>
#include <system_error>

#include "daemon/base/file_stamp.h"
#include "daemon/base/files.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

std::int64_t now_in_seconds() { return static_cast<std::int64_t>(std::time(nullptr)); }

}  // namespace

CertificateWatch::CertificateWatch(v1::AccessConfig config, fs::path folder)
    : config_(std::move(config)), folder_(std::move(folder)), stamp_(stamp()) {
  const CertificateTexts texts =
      read_certificate_files(config_.tls_cert(), config_.tls_key(), config_.tls_client_ca());
  facts_ = check_certificate(texts, now_in_seconds());
  fs::remove_all(folder_);
  fs::create_directory(folder_);
  fs::permissions(folder_, fs::perms::owner_all);
  take(texts);
}

CertificateWatch::~CertificateWatch() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

fs::path CertificateWatch::client_ca() const {
  return config_.tls_client_ca().empty() ? fs::path() : folder_ / "current" / "client_ca.pem";
}

std::string CertificateWatch::stamp() const {
  std::string stamp;
  for (const std::string& path : {config_.tls_cert(), config_.tls_key(), config_.tls_client_ca()})
    if (!path.empty()) stamp += base::file_stamp(path).value_or("none") + '\n';
  return stamp;
}

void CertificateWatch::take(const CertificateTexts& texts) {
  const std::string name = fmt::format("generation-{}", ++generation_);
  const fs::path copy = folder_ / name,
                 old = folder_ / fmt::format("generation-{}", generation_ - 1);
  fs::create_directory(copy);
  const auto write = [&](const char* file, const std::string& text) {
    base::replace_file(copy / file, text, 0600, base::Outlives::kProcess);
  };
  write("cert.pem", texts.certificate);
  write("key.pem", texts.key);
  if (!texts.client_ca.empty()) write("client_ca.pem", texts.client_ca);
  fs::create_directory_symlink(name, folder_ / "next");
  fs::rename(folder_ / "next", folder_ / "current");
  fs::remove_all(old);
}

void CertificateWatch::look() {
  const std::lock_guard lock(mutex_);
  const std::string now = stamp();
  if (now == stamp_) return;
  stamp_ = now;
  try {
    const CertificateTexts texts =
        read_certificate_files(config_.tls_cert(), config_.tls_key(), config_.tls_client_ca());
    facts_ = check_certificate(texts, now_in_seconds());
    take(texts);
    trouble_.clear();
    spdlog::info("a new certificate is in use, valid until {}",
                 base::to_rfc3339(std::chrono::system_clock::time_point(
                     std::chrono::seconds(facts_.not_after))));
  } catch (const std::exception& error) {
    trouble_ = error.what();
    spdlog::warn("{}; the certificate of before is kept", trouble_);
  }
}

std::vector<std::string> CertificateWatch::names() {
  const std::lock_guard lock(mutex_);
  return facts_.names;
}

std::vector<std::string> CertificateWatch::notes() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> notes;
  const std::int64_t left = facts_.not_after - now_in_seconds();
  const std::string date = base::to_rfc3339(
      std::chrono::system_clock::time_point(std::chrono::seconds(facts_.not_after)));
  if (left <= 0)
    notes.push_back(fmt::format("the certificate has expired on {}: clients refuse it", date));
  else if (left < std::chrono::seconds(kAhead).count())
    notes.push_back(fmt::format("the certificate expires in {} days, on {}", left / 86400, date));
  if (!trouble_.empty())
    notes.push_back(
        fmt::format("new files are not taken, the certificate of before is in use: {}", trouble_));
  return notes;
}

}  // namespace meshloom::control
