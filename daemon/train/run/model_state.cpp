// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/model_state.h"

#include <algorithm>
#include <numeric>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/nn/initialize_part.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/run/describe_parameters.h"
#include "kernels/base/error.h"
#include "planner/name_pattern.h"

namespace meshloom::train {
namespace {

/// The layout of a parameter over the mesh of a run's state. `tensor_spec`: over the mesh of the
/// ranks that share samples, or null if every rank has the whole parameter. `shard_dim`: the dim of
/// what tensor parallelism leaves that fully_shard shards. A dim that both shard is sharded by tp
/// first.
planner::SpecPtr parameter_spec(const RunMesh& run_mesh, const Shape& shape,
                                const planner::SpecPtr& tensor_spec, std::optional<int> shard_dim) {
  const planner::MeshPtr& mesh = run_mesh.state_layout();
  const auto dims = static_cast<std::size_t>(mesh->ndim());
  planner::Placements placements(dims, planner::Placement::replicate());
  std::vector<planner::DimOrderPtr> orders;
  planner::ShardOrder order;
  const std::optional<int> tp = mesh->find_dim("tp"), fsdp = run_mesh.shard_dim();
  const std::optional<int> acting = tensor_spec ? tensor_spec->mesh().find_dim("tp") : std::nullopt;
  if (acting && tensor_spec->placement(*acting).is_shard()) {
    check_internal(tp.has_value(), "a parameter is sharded over tp on the mesh {}", *mesh);
    placements[static_cast<std::size_t>(*tp)] = tensor_spec->placement(*acting);
    if (tensor_spec->has_dim_orders()) {
      orders.resize(dims);
      orders[static_cast<std::size_t>(*tp)] = tensor_spec->dim_order(*acting);
    }
  }
  if (shard_dim) {
    check_internal(fsdp.has_value(), "a parameter is sharded over fsdp on the mesh {}", *mesh);
    placements[static_cast<std::size_t>(*fsdp)] = planner::Placement::shard(*shard_dim);
    if (tp && placements[static_cast<std::size_t>(*tp)] == planner::Placement::shard(*shard_dim))
      order.push_back({*shard_dim, {*tp, *fsdp}});
  }
  return std::make_shared<const planner::DTensorSpec>(mesh, std::move(placements), shape,
                                                      std::move(order), std::move(orders));
}

/// Whether the rank at `coordinates` is the one that speaks for all that hold the same part: its
/// coordinate is 0 on every mesh dim that holds copies. `among`: of these mesh dims only.
bool speaks_for_part(const planner::DTensorSpec& spec, const std::vector<int>& coordinates,
                     const std::vector<int>& among) {
  return std::all_of(among.begin(), among.end(), [&](int dim) {
    return !spec.placement(dim).is_replicate() || coordinates[static_cast<std::size_t>(dim)] == 0;
  });
}

}  // namespace

ModelState::ModelState(ExecutionContext& context, const nn::ModelConfig& config,
                       const ModelStateOptions& options, RunMesh& mesh)
    : context_(context), mesh_(mesh) {
  {
    const DeferParametersGuard defer(context);
    model_ = nn::make_model(context, config, options.plan.dtype);
  }
  if (!options.training.frozen().empty()) {
    const auto parameters = model_->named_parameters();
    std::vector<std::string> names;
    for (const nn::NamedParameter& p : parameters) names.push_back(p.name);
    const std::vector<bool> frozen = choose_frozen(options.training, model_->config(), names);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (frozen[i]) parameters[i].parameter->value.set_requires_grad(false);
  }
  shard_parameters(options);

  std::vector<Tensor> masters;
  if (options.plan.dtype != DType::kFloat32)
    for (const nn::NamedParameter& p : data_parallel_->parameters())
      masters.push_back(empty(context_, p.parameter->value.shape(), DType::kFloat32));
  std::vector<int> sharding_dims;  // of the mesh of the state
  if (const auto dim = mesh_.shard_dim()) sharding_dims.push_back(*dim);
  if (const auto dim = mesh_.state_layout()->find_dim("tp")) sharding_dims.push_back(*dim);
  const std::vector<int> coordinates = mesh_.state_coordinates();
  NormGroup norm;
  norm.group = &mesh_.model();
  for (const planner::SpecPtr& spec : specs_)
    norm.counted.push_back(speaks_for_part(*spec, coordinates, sharding_dims));
  optimizer_ = std::make_unique<Optimizer>(context_, data_parallel_->parameters(),
                                           options.optimizer, std::move(masters), std::move(norm));
}

void ModelState::shard_parameters(const ModelStateOptions& options) {
  tensor_model_ =
      std::make_unique<parallel::ParallelModel>(*model_, mesh_.sample_mesh(), options.plan);
  const auto of_model = model_->named_parameters();
  const auto& locals = tensor_model_->local_parameters();
  std::vector<parallel::DataParallelInput> inputs;
  std::vector<std::string> names;
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < of_model.size(); ++i) {
    names.push_back(of_model[i].name);
    values.push_back(of_model[i].parameter->value);
    std::vector<int> sharded_dims;
    if (locals[i].spec)
      for (const planner::DimShardOrder& order : locals[i].spec->shard_order())
        sharded_dims.push_back(order.tensor_dim);
    inputs.push_back({{names[i], values[i].shape(), std::move(sharded_dims)}, locals[i].parameter});
  }
  std::optional<parallel::FullyShardOptions> fully_shard;
  if (options.plan.fully_shard)
    fully_shard = {planner::shard_options(options.plan.shards, names),
                   options.plan.shards.reshard_after_forward};
  data_parallel_ =
      parallel::make_data_parallel(context_, mesh_.data_parallel_groups(), inputs, fully_shard);
  partial_gradients_ = std::make_unique<parallel::PartialGradients>(
      context_, mesh_.tensor(), data_parallel_->parameters(), std::move(values));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    specs_.push_back(parameter_spec(mesh_, inputs[i].candidate.shape, locals[i].spec,
                                    data_parallel_->shard_dim(i)));
}

std::string ModelState::description() const {
  std::vector<DescribedParameter> parameters;
  for (std::size_t i = 0; i < specs_.size(); ++i)
    parameters.push_back(
        {optimizer_->parameters()[i].name, specs_[i], data_parallel_->shard_reason(i)});
  return describe_parameters(parameters);
}

void ModelState::initialize(std::size_t i, const nn::NamedParameter& parameter,
                            std::uint64_t seed) {
  nn::initialize_part(optimizer_->master(i), parameter.name, parameter.parameter->init, seed,
                      specs_[i]->shape(), held(i).ranges);
}

void ModelState::initialize(std::uint64_t seed) {
  const auto parameters = model_->named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) initialize(i, parameters[i], seed);
  optimizer_->refresh_working_copies();
}

std::string ModelState::load_hf(const std::filesystem::path& folder, std::uint64_t seed,
                                base::Disk& disk) {
  const HfFolder weights = HfFolder::open(folder, disk);
  const auto parameters = model_->named_parameters();
  weights.check_parameters(parameters, MissingHead::kFresh);
  std::int64_t fresh = 0;
  HostBlocks blocks(context_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (weights.has(parameters[i].name)) {
      weights.read(parameters[i].name, specs_[i]->shape(), held(i), optimizer_->master(i), blocks);
    } else {
      initialize(i, parameters[i], seed);
      ++fresh;
    }
  }
  optimizer_->refresh_working_copies();
  if (fresh == 0) return {};
  return fmt::format(
      "{} has no output head: its {} tensors begin with new values, of seed {} (run.model."
      "fresh_head)",
      weights.label(), fresh, seed);
}

std::vector<Tensor> ModelState::read_hf(const std::filesystem::path& folder,
                                        base::Disk& disk) const {
  const HfFolder weights = HfFolder::open(folder, disk);
  const auto parameters = model_->named_parameters();
  weights.check_parameters(parameters);
  std::vector<Tensor> values;
  HostBlocks blocks(context_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor own = optimizer_->parameters()[i].parameter->value.detach();
    // As load_hf: in float32, then rounded.
    const Tensor part = empty(context_, own.shape(), DType::kFloat32);
    weights.read(parameters[i].name, specs_[i]->shape(), held(i), part, blocks);
    values.push_back(part);
    if (own.dtype() == DType::kFloat32) continue;
    values.back() = empty_like(own);
    copy_into(values.back(), part);
  }
  return values;
}

std::vector<StateTensor> ModelState::state_to_load(const CheckpointReader& checkpoint,
                                                   bool with_optimizer) const {
  std::vector<StateTensor> items = state();
  if (!with_optimizer) {
    std::erase_if(items, [](const StateTensor& item) { return !item.name.starts_with("model."); });
    return items;
  }
  v1::RunConfig before;
  if (!run_config_from_json(checkpoint.manifest().run_config, &before)) return items;
  const auto& patterns = before.training().frozen();
  std::erase_if(items, [&](const StateTensor& item) {
    if (item.name.starts_with("model.") || checkpoint.contains(item.name)) return false;
    // "optimizer.moment1.NAME"
    const std::string name = item.name.substr(item.name.find('.', item.name.find('.') + 1) + 1);
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return planner::covers_pattern(pattern, name);
    });
  });
  return items;
}

void ModelState::check(const CheckpointReader& checkpoint, bool with_optimizer) const {
  for (const StateTensor& item : state_to_load(checkpoint, with_optimizer))
    if (!checkpoint.contains(item.name) || checkpoint.shape(item.name) != item.shape())
      throw FailedPrecondition(
          fmt::format("the checkpoint has no tensor {} of shape {}: it is of another model or "
                      "optimizer",
                      item.name, item.shape()),
          "CHECKPOINT_MISMATCH", {{"tensor", item.name}});
}

void ModelState::load(const CheckpointReader& checkpoint, bool with_optimizer) {
  check(checkpoint, with_optimizer);
  optimizer_->reset_moments();
  HostBlocks blocks(context_);
  for (const StateTensor& item : state_to_load(checkpoint, with_optimizer))
    checkpoint.read(item.name, item.shape(),
                    held_piece(item.shape(), item.spec, mesh_.world().rank()), item.tensor, blocks);
  optimizer_->refresh_working_copies();
}

void ModelState::set(std::size_t i, const TensorView& value, HostBlocks& blocks) {
  copy_common_from_host(blocks, optimizer_->master(i).view(), held(i), value,
                        whole_piece(specs_[i]->shape()));
}

Tensor ModelState::gather(const Tensor& part, std::size_t i) {
  const planner::DTensorSpec& spec = *specs_[i];
  comm::ProcessGroup& world = mesh_.world();
  std::vector<int> dims(static_cast<std::size_t>(spec.mesh().ndim()));
  std::iota(dims.begin(), dims.end(), 0);
  const auto sends = [&](int rank) {
    return speaks_for_part(spec, spec.mesh().coordinates(rank), dims) &&
           held_piece(spec.shape(), specs_[i], rank).elements() > 0;
  };
  if (world.rank() != 0) {
    if (sends(world.rank())) world.send(part.view(), 0, 0)->wait_host();
    return {};
  }
  Tensor whole = empty(context_, spec.shape(), DType::kFloat32);
  const Piece target = whole_piece(spec.shape());
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!sends(rank)) continue;
    const Piece piece = held_piece(spec.shape(), specs_[i], rank);
    Tensor received = part;
    if (rank != 0) {
      received = empty(context_, piece.shape(), DType::kFloat32);
      world.recv(received.view(), rank, 0)->wait_host();
    }
    copy_common(context_, whole.view(), target, received.view(), piece);
  }
  return whole;
}

void ModelState::serve_export() {
  while (true) {
    std::int64_t wanted = -1;
    mesh_.world().broadcast(make_view(&wanted, DType::kInt64, {1}), 0)->wait_host();
    if (wanted < 0) return;
    const auto i = static_cast<std::size_t>(wanted);
    gather(optimizer_->master(i), i);
  }
}

void ModelState::export_hf(const std::filesystem::path& folder, DType dtype,
                           const std::vector<CarriedFile>& carried) {
  comm::ProcessGroup& world = mesh_.world();
  const bool sharded = std::any_of(specs_.begin(), specs_.end(), [](const planner::SpecPtr& spec) {
    return !spec->replicated();
  });
  std::exception_ptr error;
  const auto ask = [&](std::int64_t i) {
    if (sharded) world.broadcast(make_view(&i, DType::kInt64, {1}), 0)->wait_host();
  };
  if (world.rank() != 0) {
    if (sharded) serve_export();
  } else {
    try {
      HfSaveOptions options;
      options.dtype = dtype;
      options.carried = carried;
      options.byte_tokenizer = model_->config().vocab_size == kByteVocabulary;
      std::vector<HfParameter> parameters;
      for (std::size_t i = 0; i < specs_.size(); ++i)
        parameters.push_back({optimizer_->parameters()[i].name, specs_[i]->shape(), [&, i] {
                                if (!sharded) return optimizer_->master(i).detach();
                                ask(static_cast<std::int64_t>(i));
                                return gather(optimizer_->master(i).detach(), i);
                              }});
      save_hf_folder(folder, model_->config(), parameters, options);
    } catch (...) {
      error = std::current_exception();
    }
    ask(-1);
  }
  agree(world, error);
}

}  // namespace meshloom::train
