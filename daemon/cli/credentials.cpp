// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/credentials.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "daemon/base/input_file.h"
#include "daemon/cli/exit_code.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

std::string text_of(const char* option, const std::string& path) {
  if (path.empty()) return "";
  try {
    return base::InputFile(path).read_text(kMostBytes);
  } catch (const Error& error) {
    throw CliError(kUsage, fmt::format("{}: {}", option, error.what()));
  }
}

std::string secret_in(const char* option, const std::string& path) {
  struct stat status {};
  if (!path.empty() && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
      (status.st_mode & 077) != 0)
    throw CliError(kUsage, fmt::format("{} {}: its mode is {:04o}, so that others may read it; "
                                       "chmod 600 it",
                                       option, path, status.st_mode & 07777));
  return text_of(option, path);
}

std::string token_in(const std::string& path) {
  std::string_view text;
  const std::string whole = secret_in("--access-token-file", path);
  constexpr std::string_view kBlanks = " \t\r\n";
  text = whole;
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  const bool visible =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!path.empty() && (text.empty() || text.size() > 512 || !visible))
    throw CliError(kUsage, fmt::format("--access-token-file {}: holds no token: one word on one "
                                       "line, as meshloom token create wrote it",
                                       path));
  return std::string(text);
}

bool is_unix_address(const std::string& address) { return address.starts_with("unix:"); }

/// Tells whether an address is of this host, so that nothing leaves it.
bool stays_on_host(const std::string& address) {
  return is_unix_address(address) || address.starts_with("127.") ||
         address.starts_with("localhost:") || address.starts_with("[::1]:");
}

}  // namespace

CredentialFiles find_credentials(const CredentialFiles& asked, const base::Environment& environment,
                                 const std::string& address) {
  CredentialFiles files = asked;
  if (is_unix_address(address)) return files;
  fs::path folder;
  if (environment.config_home)
    folder = fs::path(*environment.config_home) / "meshloom" / address;
  else if (environment.home)
    folder = fs::path(*environment.home) / ".config" / "meshloom" / address;
  const auto choose = [&](std::string& chosen, const std::optional<std::string>& variable,
                          const char* name) {
    if (!chosen.empty()) return;
    std::error_code error;
    if (variable)
      chosen = *variable;
    else if (!folder.empty() && address.find('/') == std::string::npos &&
             fs::exists(folder / name, error))
      chosen = (folder / name).string();
  };
  choose(files.token, environment.token_file, "token");
  choose(files.ca, environment.ca, "ca.pem");
  choose(files.cert, environment.cert, "cert.pem");
  choose(files.key, environment.key, "key.pem");
  return files;
}

Credentials read_credentials(const CredentialFiles& files, const std::string& address) {
  if (files.cert.empty() != files.key.empty())
    throw CliError(kUsage, fmt::format("--cert and --key go together, and {} is not given",
                                       files.cert.empty() ? "--cert" : "--key"));
  if (!files.cert.empty() && files.ca.empty())
    throw CliError(kUsage, "--cert needs --ca, the CA of the daemon's certificate");
  if (!files.token.empty() && files.ca.empty() && !stays_on_host(address))
    throw CliError(kUsage, fmt::format("the token of {} would go to {} in the clear; give --ca, "
                                       "the CA of the daemon's certificate",
                                       files.token, address));
  return {token_in(files.token), text_of("--ca", files.ca), text_of("--cert", files.cert),
          secret_in("--key", files.key)};
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Credentials& credentials) {
  if (!credentials.encrypts()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = credentials.ca;
  options.pem_private_key = credentials.key;
  options.pem_cert_chain = credentials.cert;
  return grpc::SslCredentials(options);
}

}  // namespace meshloom::cli
