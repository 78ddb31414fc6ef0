// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/daemon_options.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <sstream>

#include "daemon/base/config.h"
#include "daemon/base/input_file.h"
#include "daemon/base/nearest_name.h"
#include "daemon/base/utf8.h"
#include "daemon/command_line/documentation.h"
#include "daemon/command_line/usage_error.h"
#include "daemon/control/access/audit_log.h"
#include "daemon/control/access/limits.h"
#include "daemon/control/access/roles.h"
#include "daemon/control/net/listen_address.h"
#include "daemon/control/ranks/rank_watch.h"
#include "daemon/control/stores/upload_store.h"
#include "daemon/train/files/paths.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = MESHLOOM_VERSION;

/// As the config has them. Throws InvalidArgument for a folder that could not be told from two.
std::string joined(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    check(folder.find(train::kBetweenFolders) == std::string::npos,
          "--data-dir {}: a \"{}\" separates folders, so none may have it in its path", folder,
          train::kBetweenFolders);
  return fmt::format("{}", fmt::join(folders, std::string(1, train::kBetweenFolders)));
}

/// A regular file: the daemon does not wait for a pipe.
ConfigFile read_config_file(const std::string& path) {
  ConfigFile file{path, std::nullopt, ""};
  if (path.empty()) return file;
  try {
    file.text = base::InputFile(path).read_text(base::YamlLimits().bytes);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Error& error) {
    file.refusal = error.what();
  }
  return file;
}

/// "NAME=ROLE"; what the name and the role may be is RoleRules' to check.
v1::RoleRule rule_of(const std::string& text) {
  const auto equals = text.find('=');
  check(equals != std::string::npos, "--role {}: expected NAME=ROLE, such as alice=submitter",
        base::printable_text(text, 80, false));
  v1::RoleRule rule;
  rule.set_name(text.substr(0, equals));
  rule.set_role(text.substr(equals + 1));
  return rule;
}

void merge_access(const DaemonFlags& flags, v1::AccessConfig* access) {
  if (flags.tls_cert) access->set_tls_cert(*flags.tls_cert);
  if (flags.tls_key) access->set_tls_key(*flags.tls_key);
  if (flags.tls_client_ca) access->set_tls_client_ca(*flags.tls_client_ca);
  if (flags.tokens) access->set_tokens(*flags.tokens);
  if (flags.socket) access->set_socket(*flags.socket);
  if (!flags.roles.empty()) access->clear_roles();
  for (const std::string& role : flags.roles) *access->add_roles() = rule_of(role);
}

void check_access(const v1::AccessConfig& access) {
  check(access.tls_cert().empty() == access.tls_key().empty(),
        "--tls-cert and --tls-key go together, and {} is not given",
        access.tls_cert().empty() ? "--tls-cert" : "--tls-key");
  check(access.tls_client_ca().empty() || !access.tls_cert().empty(),
        "--tls-client-ca needs --tls-cert and --tls-key: clients show certificates over TLS alone");
  RoleRules{access};
}

/// Of rank 0's host; its working folder may be another one later.
void make_absolute(v1::AccessConfig* access) {
  const auto absolute = [](std::string* path) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  };
  absolute(access->mutable_tls_cert());
  absolute(access->mutable_tls_key());
  absolute(access->mutable_tls_client_ca());
  absolute(access->mutable_tokens());
  absolute(access->mutable_socket());
}

v1::DaemonConfig merge(const ConfigFile& file, const DaemonFlags& flags,
                       const base::Environment& env) {
  v1::DaemonConfig config;
  if (file.text) config = base::parse_daemon_config(*file.text, file.path);
  if (env.state_dir) config.set_state_dir(*env.state_dir);
  if (env.data_dir) config.set_data_dir(*env.data_dir);
  if (env.threads) config.set_threads(*env.threads);
  if (env.log_level) config.set_log_level(*env.log_level);
  if (flags.listen) config.set_listen(*flags.listen);
  if (flags.state_dir) config.set_state_dir(*flags.state_dir);
  if (!flags.data_dirs.empty()) config.set_data_dir(joined(flags.data_dirs));
  if (flags.log_level) config.set_log_level(*flags.log_level);
  if (flags.mpi_interface) config.set_mpi_interface(*flags.mpi_interface);
  if (flags.world_size) config.set_world_size(*flags.world_size);
  if (flags.threads) config.set_threads(*flags.threads);
  if (flags.on_event) config.set_on_event(*flags.on_event);
  if (flags.no_resume) config.set_no_resume(true);
  if (flags.insecure) config.set_insecure(true);
  merge_access(flags, config.mutable_access());
  if (config.listen().empty()) config.set_listen("127.0.0.1:7420");
  if (config.state_dir().empty()) config.set_state_dir("meshloom-state");
  if (config.data_dir().empty()) config.set_data_dir(".");
  if (config.log_level().empty()) config.set_log_level("info");
  if (flags.max_stalled_attempts) config.set_max_stalled_attempts(*flags.max_stalled_attempts);
  if (!config.has_max_stalled_attempts()) config.set_max_stalled_attempts(3);
  if (!config.has_collective_timeout_ms()) config.set_collective_timeout_ms(100'000);
  if (!config.has_rank_timeout_ms()) config.set_rank_timeout_ms(10'000);
  if (!config.has_join_timeout_ms()) config.set_join_timeout_ms(60'000);
  if (!config.has_resolve_timeout_ms()) config.set_resolve_timeout_ms(60'000);
  if (!config.has_stop_timeout_ms()) config.set_stop_timeout_ms(600'000);
  if (!config.has_generation_share()) config.set_generation_share(1.0 / 3.0);
  if (!config.has_token_cache_bytes()) config.set_token_cache_bytes(std::int64_t{64} << 30);
  *config.mutable_uploads() = with_upload_defaults(config.uploads());
  *config.mutable_limits() = with_limit_defaults(config.limits());
  if (!config.audit().has_max_bytes())
    config.mutable_audit()->set_max_bytes(AuditLog::kDefaultBytes);
  return config;
}

/// Names of folders go to clients and into the journal as text.
std::string utf8_path(const fs::path& path, const char* flag) {
  if (!base::is_utf8(path.string()))
    throw InvalidArgument(
        fmt::format("{}: the path {} is not UTF-8; rename the folder, or give a link to it", flag,
                    base::printable_text(path.string())),
        "PATH_NOT_UTF8");
  return path.string();
}

void check_values(const v1::DaemonConfig& config, const DaemonFlags& flags) {
  constexpr int kMostThreads = 4096;
  check(!config.has_threads() || (config.threads() > 0 && config.threads() <= kMostThreads),
        "{} is {}, expected 1 to {}; leave it out for usable cores / ranks of the host",
        flags.threads ? "--threads" : "threads", config.threads(), kMostThreads);
  check(!config.has_world_size() || config.world_size() > 0,
        "{} is {}, expected 1 or more; leave it out for any number of ranks",
        flags.world_size ? "--world-size" : "world_size", config.world_size());
  check(config.collective_timeout_ms() > 0, "collective_timeout_ms is {}, expected more than 0",
        config.collective_timeout_ms());
  check(config.rank_timeout_ms() >= kNamedAfter.count(),
        "rank_timeout_ms is {}, expected {} or more", config.rank_timeout_ms(),
        kNamedAfter.count());
  check(config.join_timeout_ms() > 0, "join_timeout_ms is {}, expected more than 0",
        config.join_timeout_ms());
  check(config.resolve_timeout_ms() > 0, "resolve_timeout_ms is {}, expected more than 0",
        config.resolve_timeout_ms());
  check(config.stop_timeout_ms() > 0, "stop_timeout_ms is {}, expected more than 0",
        config.stop_timeout_ms());
  check(config.max_stalled_attempts() > 0, "{} is {}, expected 1 or more",
        flags.max_stalled_attempts ? "--max-stalled-attempts" : "max_stalled_attempts",
        config.max_stalled_attempts());
  check(config.retention().max_ended_jobs() >= 0,
        "retention.max_ended_jobs is {}, expected 0 or more", config.retention().max_ended_jobs());
  check(config.retention().max_age_seconds() >= 0,
        "retention.max_age_seconds is {}, expected 0 or more",
        config.retention().max_age_seconds());
  check(config.audit().max_bytes() >= AuditLog::kLeastBytes,
        "audit.max_bytes is {}, expected {} or more", config.audit().max_bytes(),
        AuditLog::kLeastBytes);
  check(config.token_cache_bytes() > 0, "token_cache_bytes is {}, expected more than 0",
        config.token_cache_bytes());
  check(config.generation_share() > 0 && config.generation_share() <= 1,
        "generation_share is {}, expected more than 0 and at most 1", config.generation_share());
  const std::string& level = config.log_level();
  check(level == "trace" || level == "debug" || level == "info" || level == "warning" ||
            level == "error",
        "--log-level is \"{}\", expected trace, debug, info, warning or error", level);
  if (config.listen() != kNowhere) parse_host_port(config.listen(), "--listen");
  check_access(config.access());
}

/// meshloomd's parser, which has parsed nothing.
struct DaemonParser {
  DaemonParser() { declare_daemon_options(app, flags); }
  CLI::App app{"meshloomd trains Transformer models: one process per rank, driven over gRPC.",
               "meshloomd"};
  DaemonFlags flags;
};

constexpr int kUsage = 2;

/// Its flags alone: the command line is the same on all ranks, the rest of their settings may not
/// be.
void answer_flags(ParsedDaemonOptions* parsed) {
  if (parsed->flags.print_manual || !parsed->flags.print_completion.empty()) {
    const DaemonParser fresh;
    parsed->exit_code = 0;
    parsed->answer = parsed->flags.print_manual
                         ? command_line::manual_page(fresh.app, kVersion)
                         : command_line::completion(fresh.app, parsed->flags.print_completion);
    return;
  }
  try {
    check_values(merge({}, parsed->flags, {}), parsed->flags);
  } catch (const InvalidArgument& error) {
    parsed->exit_code = kUsage;
    parsed->answer = error.what();
  }
}

void fill_in(ParsedDaemonOptions* parsed) {
  DaemonOptions& options = parsed->options;
  options.version = kVersion;
  options.host = parsed->env.host.value_or("");
  options.config = merge(parsed->file, parsed->flags, parsed->env);
  v1::DaemonConfig& config = options.config;
  check_values(config, parsed->flags);
  config.set_state_dir(
      utf8_path(fs::absolute(config.state_dir()).lexically_normal(), "--state-dir"));
  make_absolute(config.mutable_access());
  std::vector<std::string> folders;
  for (const fs::path& folder : train::data_folders(config.data_dir()))
    folders.push_back(utf8_path(fs::weakly_canonical(fs::absolute(folder)), "--data-dir"));
  config.set_data_dir(joined(folders));
}

}  // namespace

void check_data_dir(const v1::DaemonConfig& config) {
  std::error_code error;
  for (const fs::path& folder : train::data_folders(config.data_dir()))
    if (!fs::is_directory(folder, error))
      throw NotFound(fmt::format("--data-dir {}: no such folder{}", folder.string(),
                                 base::nearest_hint(folder, base::Beside::kFolders)),
                     "DATA_DIR_MISSING");
}

ListenAddress checked_listen(const v1::DaemonConfig& config) {
  ListenAddress listen = resolve_listen_address(config.listen(), "--listen");
  if (is_loopback(listen) || !config.access().tls_cert().empty() || config.insecure())
    return listen;
  throw InvalidArgument(
      fmt::format(
          "--listen {}: other machines could reach this address, and calls are neither encrypted "
          "nor authenticated; listen on 127.0.0.1, give --tls-cert and --tls-key, or add "
          "--insecure where the network is closed",
          config.listen()),
      "LISTEN_INSECURE");
}

void declare_daemon_options(CLI::App& app, DaemonFlags& flags) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", std::string("meshloomd ") + kVersion);
  app.add_option("--config", flags.config,
                 "YAML file with these settings (proto: DaemonConfig), of rank 0's host; others "
                 "may have the same or none");
  app.add_option("--listen", flags.listen,
                 "Address for clients, host:port; port 0 takes a free one, written to "
                 "STATE_DIR/address; none: Unix sockets alone. Default 127.0.0.1:7420");
  app.add_option(
      "--state-dir", flags.state_dir,
      "Folder for jobs, checkpoints, journal and logs; made where it is missing. Default "
      "./meshloom-state");
  app.add_option(
         "--data-dir", flags.data_dirs,
         "Folder below which jobs find data and models; several times for several, which "
         "are searched in their order. In MESHLOOM_DATA_DIR and the config a colon separates "
         "folders, so a path with one is refused. Default: the working folder")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--world-size", flags.world_size,
                 "Exit with code 2 unless there are so many ranks");
  app.add_option("--threads", flags.threads,
                 "Threads per rank. Default: usable cores / ranks of the host");
  app.add_flag(
      "--no-resume", flags.no_resume,
      "Hold the jobs that an earlier daemon left unfinished, until they are released (meshloom "
      "job release)");
  app.add_option("--max-stalled-attempts", flags.max_stalled_attempts,
                 "Hold a job when the daemon has ended in so many attempts in a row before a step "
                 "was done that no attempt had done. Default 3");
  app.add_option("--tls-cert", flags.tls_cert,
                 "Certificate of the daemon and those between it and its CA (PEM): calls over TCP "
                 "are encrypted then. A new one is taken without a restart");
  app.add_option("--tls-key", flags.tls_key, "Its key (PEM), which nobody else may read");
  app.add_option("--tls-client-ca", flags.tls_client_ca,
                 "CA of clients' certificates (PEM): a client is who the first subject alternative "
                 "name of its certificate says");
  app.add_option("--tokens", flags.tokens,
                 "File of the tokens by which clients are known (meshloom token), of mode 0600. "
                 "Default STATE_DIR/access_tokens");
  app.add_option("--socket", flags.socket,
                 "Unix socket for other accounts of this host, beside STATE_DIR/socket, which is "
                 "for the daemon's own account");
  app.add_option("--role", flags.roles,
                 "NAME=ROLE: what a client may do that is known by its account on this host, by a "
                 "group of accounts (@GROUP) or by its certificate; several times for several, of "
                 "which the first that fits counts. Roles: viewer, submitter, admin. Without one "
                 "all but the daemon's own account and root are refused")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_flag(
      "--insecure", flags.insecure,
      "Allow --listen on an address that other machines reach without TLS, and ask nobody who it "
      "is: calls are neither encrypted nor "
      "authenticated, so that whoever reaches it may do all that you may. A connection that begins "
      "and resets calls, or sends a header without end, is shut down, but after up to some "
      "thousand calls or tens of MiB: who opens many keeps the daemon busy");
  app.add_option("--mpi-interface", flags.mpi_interface,
                 "Interface or subnet of a closed network for all traffic between ranks; needed "
                 "over several hosts. none: all ranks are on one host");
  app.add_option("--on-event", flags.on_event,
                 "Command of a shell that is started for each state that a job comes to, with the "
                 "event as JSON on its standard input and MESHLOOM_JOB, MESHLOOM_STATE and "
                 "MESHLOOM_REASON in its environment");
  app.add_option("--log-level", flags.log_level,
                 "trace, debug, info, warning or error. Default info");
  app.add_flag("--check", flags.check,
               "Say whether it could start with these settings, without MPI, and end: the state "
               "folder and what else follows from them in JSON, or why not");
  app.add_flag("--print-manual", flags.print_manual, "Print the manual page, in roff, and end");
  app.add_option("--print-completion", flags.print_completion,
                 "Print a script by which this shell completes options, and end")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(command_line::kShells),
                                                     std::end(command_line::kShells))));
  app.footer(
      "Example: mpirun -n 2 --bind-to none meshloomd --state-dir state --data-dir data\n"
      "The client is called meshloom. Environment: MESHLOOM_STATE_DIR, MESHLOOM_DATA_DIR, "
      "MESHLOOM_THREADS,\nMESHLOOM_LOG_LEVEL, MESHLOOM_HOST (this host's address for other "
      "hosts),\n"
      "MESHLOOM_SYMMETRIC_MEMORY (auto, fd_folder, socket, off: how ranks of a host share memory), "
      "MESHLOOM_HIERARCHY\n(auto, leaders, striped, off: how data passes between hosts). Flags "
      "win over them.");
}

void take_config_text(const std::string& text, ParsedDaemonOptions* parsed) {
  parsed->file.text = text;
  fill_in(parsed);
}

ParsedDaemonOptions parse_daemon_options(int argc, char** argv, const base::Environment& env) {
  DaemonParser parser;
  ParsedDaemonOptions parsed;
  try {
    parser.app.parse(argc, argv);
    parsed.flags = parser.flags;
    answer_flags(&parsed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      parser.app.exit(error, text, text);
      parsed.exit_code = 0;
      parsed.answer = text.str();
    } else {
      parsed.exit_code = kUsage;
      parsed.answer = command_line::usage_text(parser.app, error);
    }
  }
  if (parsed.exit_code) return parsed;
  parsed.env = env;
  parsed.file = read_config_file(parsed.flags.config);
  fill_in(&parsed);
  return parsed;
}

}  // namespace meshloom::control
