// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/connection_doors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;

// Of LocalDoors::doors.
constexpr std::size_t kOwn = 0, kNobodys = 1, kOthers = 2;

bool is_unix(int connection) {
  int family = 0;
  socklen_t size = sizeof family;
  ::getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family == AF_UNIX;
}

}  // namespace

ConnectionDoors::ConnectionDoors(const Options& options, grpc::ServerBuilder* builder)
    : identifier_(options.identifier) {
  const bool anybody = identifier_ == nullptr || identifier_->everybody_is_admin();
  if (options.tcp && (options.tls || anybody))
    tcp_ = Door{builder->experimental().AddExternalConnectionAcceptor(
                    Type::FROM_FD, options.tls ? options.tls : grpc::InsecureServerCredentials()),
                nullptr};
  else if (options.tcp)
    local_tcp_ = make_local(LOCAL_TCP, builder);
  if (options.unix_sockets) unix_ = make_local(UDS, builder);
}

ConnectionDoors::LocalDoors ConnectionDoors::make_local(grpc_local_connect_type type,
                                                        grpc::ServerBuilder* builder) const {
  LocalDoors local;
  local.free = kOthers;
  const bool others = identifier_ != nullptr && identifier_->knows_other_accounts();
  const std::size_t count = kOthers + (others ? kMostAccounts : 0);
  for (std::size_t i = 0; i < count; ++i) {
    // Credentials without a processor of calls would abort the process if they were insecure ones.
    const auto credentials = grpc::experimental::LocalServerCredentials(type);
    const auto mark = std::make_shared<AccountMark>(
        i == kOwn ? static_cast<std::int64_t>(::geteuid()) : AccountMark::kNobody);
    credentials->SetAuthMetadataProcessor(mark);
    local.doors.push_back(
        {builder->experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials), mark});
  }
  return local;
}

ConnectionDoors::Door* ConnectionDoors::local_door(LocalDoors& local,
                                                   std::optional<uid_t> account) {
  if (!account || identifier_ == nullptr) return &local.doors[kNobodys];
  const Identity identity = identifier_->account_connected(*account);
  if (identity.name == Identity::admin().name) return &local.doors[kOwn];
  const auto found = local.given.find(*account);
  if (found != local.given.end()) return &local.doors[found->second];
  if (identity.role == Role::kNone) return &local.doors[kNobodys];
  if (local.free == local.doors.size()) return nullptr;
  Door& door = local.doors[local.free];
  door.mark->set_account(static_cast<std::int64_t>(*account));
  local.given[*account] = local.free++;
  return &door;
}

void ConnectionDoors::hand_over(int listener, base::UniqueFd connection,
                                std::optional<uid_t> account) {
  Door* door = nullptr;
  if (!unix_.doors.empty() && is_unix(connection.get()))
    door = local_door(unix_, account);
  else
    door = tcp_ ? &*tcp_ : local_door(local_tcp_, account);
  if (door == nullptr) {
    spdlog::warn(
        "a connection of account {} is refused: {} other accounts have connected since the start, "
        "and no more are told apart; start the daemon again, or give its user a token",
        *account, kMostAccounts);
    return;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener;
  parameters.fd = connection.release();
  door->acceptor->HandleNewConnection(&parameters);
}

}  // namespace meshloom::control
