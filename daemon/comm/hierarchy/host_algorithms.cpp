// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/host_algorithms.h"

#include <utility>

#include "daemon/comm/collectives/transport_algorithms.h"
#include "daemon/comm/group_checks.h"
#include "daemon/comm/hierarchy/hierarchical_moves.h"
#include "daemon/comm/hierarchy/hierarchical_reductions.h"

namespace meshloom::comm {
namespace {

class HierarchicalAlgorithms final : public Algorithms {
 public:
  HierarchicalAlgorithms(const std::shared_ptr<Transport>& transport,
                         std::unique_ptr<Algorithms> local, const SymmetricSetup& setup,
                         HostLayout layout, HierarchyChoice choice)
      : messages_(make_transport_algorithms(transport, setup.threads)),
        setup_(setup),
        context_(transport, std::move(local), std::move(layout), setup.threads, choice) {}

  int rank() const override { return context_.layout().rank(); }
  int size() const override { return context_.layout().size(); }
  std::shared_ptr<SymmetricMemory> symmetric_memory() const override {
    return context_.local().symmetric_memory();
  }
  std::string hosts() const override {
    return fmt::format("{}; table {}", to_string(context_.layout()), kHierarchyTableVersion);
  }

  std::unique_ptr<Collective> start(const Call& call) override {
    switch (call.signature.kind) {
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv: return messages_->start(call);
      case CollectiveKind::kAllReduce:
        return std::make_unique<HierarchicalAllReduce>(context_, call);
      case CollectiveKind::kReduceScatter:
        return std::make_unique<HierarchicalReduceScatter>(context_, call);
      case CollectiveKind::kAllGather:
        return std::make_unique<HierarchicalAllGather>(context_, call);
      case CollectiveKind::kBroadcast:
        return std::make_unique<HierarchicalBroadcast>(context_, call);
      case CollectiveKind::kBarrier: return std::make_unique<HierarchicalBarrier>(context_, call);
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kSendRecv:
      case CollectiveKind::kGather:
      case CollectiveKind::kScatter: return std::make_unique<HierarchicalExchange>(context_, call);
      case CollectiveKind::kNone: break;
    }
    throw InternalError("a call without a collective");
  }

  void progress() override {
    context_.transport().progress();
    context_.local().progress();
  }

  std::unique_ptr<Algorithms> split(const std::vector<std::vector<int>>& parts,
                                    GroupKey key) override {
    HierarchyOptions options{context_.choice()};
    for (const int member : part_of(parts, rank()))
      options.hosts.push_back(context_.layout().host_of(member));
    return make_host_algorithms(context_.transport().split(parts, key), setup_, options, key);
  }

  void renew() override {
    messages_->renew();
    context_.renew();
  }
  void abandon_memory() override {
    messages_->abandon_memory();
    context_.local().abandon_memory();
    context_.scratch().abandon();
  }

 private:
  std::unique_ptr<Algorithms> messages_;
  SymmetricSetup setup_;
  HierarchicalContext context_;
};

}  // namespace

std::unique_ptr<Algorithms> make_host_algorithms(std::unique_ptr<Transport> transport,
                                                 const SymmetricSetup& setup,
                                                 const HierarchyOptions& options, GroupKey key) {
  HostLayout layout(options.hosts, transport->rank());
  const bool wanted = options.choice != HierarchyChoice::kMessages;
  if (layout.hosts() == 1 && layout.size() > 1)
    return make_symmetric_algorithms(make_transport_algorithms(std::move(transport), setup.threads),
                                     setup);
  if (layout.hosts() == layout.size() || !wanted)
    return make_transport_algorithms(std::move(transport), setup.threads);
  // Inside this rank's host.
  std::vector<std::vector<int>> hosts;
  for (int host = 0; host < layout.hosts(); ++host) hosts.push_back(layout.members(host));
  auto local = make_transport_algorithms(transport->split(hosts, host_key(key)), setup.threads);
  if (layout.local_size() > 1) {
    SymmetricSetup named = setup;
    named.names = layout.own_members();
    local = make_symmetric_algorithms(std::move(local), named);
  }
  return std::make_unique<HierarchicalAlgorithms>(std::move(transport), std::move(local), setup,
                                                  std::move(layout), options.choice);
}

}  // namespace meshloom::comm
