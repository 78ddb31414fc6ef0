// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/flight/collective_group.h"

#include <numeric>

#include "daemon/comm/backoff.h"
#include "daemon/comm/exposure.h"
#include "daemon/comm/flight/group_state.h"
#include "daemon/comm/group_checks.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

using Views = std::span<const TensorView>;

std::size_t bytes_of(Views views) {
  std::size_t bytes = 0;
  for (const TensorView& view : views) bytes += view.bytes();
  return bytes;
}

class ExposureInFlight final : public Exposure {
 public:
  ExposureInFlight(WorkPtr work, std::shared_ptr<ExposedViews> exposed)
      : work_(std::move(work)), exposed_(std::move(exposed)) {}

  bool poll() override { return work_->poll(); }
  void enqueue_wait(Stream) override { wait_host(); }
  void wait_host() override {
    exposed_->released = true;
    work_->wait_host();
  }
  std::span<const TensorView> of(int rank) override {
    const std::vector<TensorView>& views = exposed_->peers.at(static_cast<std::size_t>(rank));
    for (Backoff backoff; views.empty(); backoff.pause()) work_->poll();
    return views;
  }
  void release() override {
    exposed_->released = true;
    work_->poll();
  }

 private:
  WorkPtr work_;
  std::shared_ptr<ExposedViews> exposed_;
};

class CollectiveGroup final : public ProcessGroup {
 public:
  CollectiveGroup(std::unique_ptr<Algorithms> algorithms, GroupOptions options,
                  std::shared_ptr<RankGroups> groups, GroupPlace place)
      : state_(std::move(algorithms), std::move(options), std::move(groups), std::move(place)) {}

  const std::string& name() const override { return state_.options().name; }
  int rank() const override { return state_.algorithms().rank(); }
  int size() const override { return state_.algorithms().size(); }

  WorkPtr all_reduce(const TensorView& data, ReduceOp op, AllReduceAlgorithm algorithm) override {
    state_.check_usable("all_reduce");
    buffers("all_reduce").check_buffer(data, "data");
    check_reducible(data.dtype, op, "all_reduce");
    Signature signature = make_signature(CollectiveKind::kAllReduce, data.dtype, {&data, 1});
    signature.op = op;
    Call call{signature, {&data, 1}, {&data, 1}};
    call.bytes = data.bytes();
    call.algorithm = algorithm;
    return state_.issue(call);
  }

  WorkPtr all_gather(Views outputs, const TensorView& input) override {
    state_.check_usable("all_gather");
    CallBuffers checks = buffers("all_gather");
    checks.check_parts(outputs, size(), input.dtype, "outputs");
    checks.check_buffer(input, "input");
    check_same_size(own(outputs), input, "all_gather");
    return issue(make_signature(CollectiveKind::kAllGather, input.dtype, outputs), outputs,
                 {&input, 1}, input.bytes());
  }

  WorkPtr reduce_scatter(const TensorView& output, Views inputs, ReduceOp op) override {
    state_.check_usable("reduce_scatter");
    CallBuffers checks = buffers("reduce_scatter");
    checks.check_parts(inputs, size(), output.dtype, "inputs");
    checks.check_buffer(output, "output");
    check_same_size(output, own(inputs), "reduce_scatter");
    check_reducible(output.dtype, op, "reduce_scatter");
    Signature signature = make_signature(CollectiveKind::kReduceScatter, output.dtype, inputs);
    signature.op = op;
    return issue(signature, {&output, 1}, inputs, bytes_of(inputs));
  }

  WorkPtr all_to_all(Views outputs, Views inputs) override {
    return exchange(CollectiveKind::kAllToAll, outputs, inputs);
  }
  WorkPtr send_recv(Views outputs, Views inputs) override {
    return exchange(CollectiveKind::kSendRecv, outputs, inputs);
  }

  WorkPtr broadcast(const TensorView& data, int root) override {
    state_.check_usable("broadcast");
    buffers("broadcast").check_buffer(data, "data");
    check_root(root, "broadcast");
    Signature signature = make_signature(CollectiveKind::kBroadcast, data.dtype, {&data, 1});
    signature.root = root;
    return issue(signature, {&data, 1}, {&data, 1}, data.bytes());
  }

  WorkPtr scatter(const TensorView& output, Views inputs, int root) override {
    state_.check_usable("scatter");
    CallBuffers checks = buffers("scatter");
    checks.check_buffer(output, "output");
    check_root(root, "scatter");
    if (root == rank()) {
      checks.check_parts(inputs, size(), output.dtype, "inputs");
      check_same_size(output, own(inputs), "scatter");
    }
    return issue(make_signature(CollectiveKind::kScatter, output.dtype, root), {&output, 1},
                 root == rank() ? inputs : Views{}, output.bytes());
  }

  WorkPtr gather(Views outputs, const TensorView& input, int root) override {
    state_.check_usable("gather");
    CallBuffers checks = buffers("gather");
    checks.check_buffer(input, "input");
    check_root(root, "gather");
    if (root == rank()) {
      checks.check_parts(outputs, size(), input.dtype, "outputs");
      check_same_size(own(outputs), input, "gather");
    }
    return issue(make_signature(CollectiveKind::kGather, input.dtype, root),
                 root == rank() ? outputs : Views{}, {&input, 1}, input.bytes());
  }

  WorkPtr send(const TensorView& data, int destination, int tag) override {
    return direct(CollectiveKind::kSend, data, destination, tag);
  }
  WorkPtr recv(const TensorView& data, int source, int tag) override {
    return direct(CollectiveKind::kRecv, data, source, tag);
  }

  WorkPtr barrier() override {
    state_.check_usable("barrier");
    return issue(make_signature(CollectiveKind::kBarrier, DType{}), {}, {}, 0);
  }

  std::unique_ptr<Exposure> expose(CollectiveKind kind, Views views, std::size_t bytes) {
    const char* const name = kind_name(kind);
    check_internal(kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll,
                   "an exposure counted as {}", name);
    state_.check_usable(name);
    if (!state_.algorithms().exposes(views.size())) return nullptr;
    Signature signature = make_signature(kind, views[0].dtype);
    signature.exposes = true;
    signature.shares = views.size();
    Call call{signature, {}, views};
    call.bytes = bytes;
    call.exposed = std::make_shared<ExposedViews>();
    call.exposed->peers.resize(static_cast<std::size_t>(size()));
    call.exposed->peers[static_cast<std::size_t>(rank())].assign(views.begin(), views.end());
    return std::make_unique<ExposureInFlight>(state_.issue(call), call.exposed);
  }

  std::unique_ptr<ProcessGroup> split(const std::vector<std::vector<int>>& parts,
                                      const std::string& name) override;

  CommCounter counter(const std::string& collective) const override {
    return state_.counter(collective);
  }
  std::map<std::string, CommCounter> counters() const override { return state_.counters(); }
  void reset_counters() override { state_.reset_counters(); }
  std::string flight_record() const override { return state_.flight_record(); }
  FailureDomain* failures() override { return state_.groups().get(); }
  std::optional<GroupDevice> device() const override { return state_.options().device; }
  std::shared_ptr<SymmetricMemory> symmetric_memory() override {
    return state_.algorithms().symmetric_memory();
  }
  std::string hosts() const override { return state_.algorithms().hosts(); }

 private:
  const TensorView& own(Views parts) const { return parts[static_cast<std::size_t>(rank())]; }

  CallBuffers buffers(const char* collective) const {
    return {collective, state_.options().device};
  }
  void check_root(int root, const char* collective) const {
    check(root >= 0 && root < size(), "{}: root {} is not one of {} ranks", collective, root,
          size());
  }

  WorkPtr exchange(CollectiveKind kind, Views outputs, Views inputs) {
    const char* const name = kind_name(kind);
    state_.check_usable(name);
    check(!inputs.empty(), "{}: no inputs", name);
    CallBuffers checks = buffers(name);
    checks.check_parts(inputs, size(), inputs[0].dtype, "inputs");
    checks.check_parts(outputs, size(), inputs[0].dtype, "outputs");
    check_same_size(own(outputs), own(inputs), name);
    return issue(make_signature(kind, inputs[0].dtype), outputs, inputs, bytes_of(inputs));
  }

  WorkPtr direct(CollectiveKind kind, const TensorView& data, int peer, int tag) {
    const char* const name = kind_name(kind);
    state_.check_usable(name);
    buffers(name).check_buffer(data, "data");
    check_peer(name, peer, rank(), size(), tag);
    Call call{make_signature(kind, data.dtype), {&data, 1}, {&data, 1}};
    call.peer = peer;
    call.tag = tag;
    call.bytes = data.bytes();
    return state_.issue(call);
  }

  WorkPtr issue(const Signature& signature, Views outputs, Views inputs, std::size_t bytes) {
    Call call{signature, outputs, inputs};
    call.bytes = bytes;
    return state_.issue(call);
  }

  GroupState state_;
  /// Lives as long as messages of a collective that failed may still arrive.
  std::int64_t part_number_ = 0;
};

std::unique_ptr<ProcessGroup> CollectiveGroup::split(const std::vector<std::vector<int>>& parts,
                                                     const std::string& name) {
  state_.check_usable("split");
  check_partition(parts, size());
  check(state_.in_flight() == 0, "split of group '{}': {} collectives are in flight", this->name(),
        state_.in_flight());
  // All agree on a number that no member has used for a part of any group; so all are here, within
  // the deadline, before the algorithms may block.
  part_number_ = static_cast<std::int64_t>(state_.groups()->parts_so_far() + 1);
  const TensorView view = make_view(&part_number_, DType::kInt64, {1});
  Signature signature = make_signature(CollectiveKind::kAllReduce, view.dtype, {&view, 1});
  signature.op = ReduceOp::kMax;
  issue(signature, {&view, 1}, {&view, 1}, view.bytes())->wait_host();
  const auto number = static_cast<std::uint64_t>(part_number_);
  state_.groups()->note_part(number);

  GroupPlace place;
  place.key = part_key(number);
  const std::vector<int>& mine = part_of(parts, rank());
  for (const int member : mine)
    place.world_ranks.push_back(state_.place().world_ranks[static_cast<std::size_t>(member)]);
  GroupOptions options = state_.options();
  options.name = name;
  auto algorithms = state_.algorithms().split(parts, place.key);
  if (mine.size() == 1) return make_single_process_group(options);
  return std::make_unique<CollectiveGroup>(std::move(algorithms), std::move(options),
                                           state_.groups(), std::move(place));
}

}  // namespace

std::unique_ptr<Exposure> expose(ProcessGroup& group, CollectiveKind kind,
                                 std::span<const TensorView> views, std::size_t bytes) {
  auto* const collective = dynamic_cast<CollectiveGroup*>(&group);
  return collective != nullptr ? collective->expose(kind, views, bytes) : nullptr;
}

std::unique_ptr<ProcessGroup> make_collective_group(std::unique_ptr<Algorithms> algorithms,
                                                    const GroupOptions& options,
                                                    std::shared_ptr<RankGroups> groups,
                                                    GroupKey key) {
  if (algorithms->size() == 1) return make_single_process_group(options);
  GroupPlace place{std::vector<int>(static_cast<std::size_t>(algorithms->size())), key, true};
  std::iota(place.world_ranks.begin(), place.world_ranks.end(), 0);
  return std::make_unique<CollectiveGroup>(std::move(algorithms), options, std::move(groups),
                                           std::move(place));
}

}  // namespace meshloom::comm
