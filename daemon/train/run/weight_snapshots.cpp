// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/weight_snapshots.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::train {

void WeightSnapshots::keep(const std::string& name, std::int64_t step) {
  if (names_.count(name) > 0)
    throw AlreadyExists(fmt::format("weights \"{}\" exist already; choose another name", name),
                        "WEIGHTS_EXIST", {{"weights", name}, {"field", "name"}});
  Handle current = current_.lock();
  if (!current) current = std::make_shared<Weights>(Weights{step, {}, {}});
  current_ = current;
  names_[name] = std::move(current);
}

void WeightSnapshots::drop(const std::string& name) {
  use(nullptr);
  names_.erase(name);
}

WeightSnapshots::Handle WeightSnapshots::find(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end())
    throw FailedPrecondition(fmt::format("the weights \"{}\" are not there (any more)", name),
                             "SNAPSHOT_STALE", {{"weights", name}, {"field", "weights"}});
  return found->second;
}

WeightSnapshots::Handle WeightSnapshots::load(const std::filesystem::path& folder,
                                              std::int64_t step) {
  std::erase_if(loaded_, [](const auto& item) { return item.second.expired(); });
  // A folder of this name may have been deleted and saved again meanwhile.
  const LoadedKey key{folder, step, disk_.stamp(folder / "config.json").value_or("")};
  if (const auto known = loaded_.find(key); known != loaded_.end()) return known->second.lock();
  auto loaded = std::make_shared<Weights>(Weights{step, {}, {}});
  fill(*loaded, state_.read_hf(folder, disk_));
  loaded_[key] = loaded;
  return loaded;
}

void WeightSnapshots::fill(Weights& weights, std::vector<Tensor> values) {
  std::size_t largest = 0;
  for (const Tensor& value : values) largest = std::max(largest, value.view().bytes());
  const auto floats = static_cast<std::int64_t>(divide_up(largest, sizeof(float)));
  weights.scratch = empty(state_.model().context(), {floats}, DType::kFloat32);
  weights.values = std::move(values);
}

void WeightSnapshots::before_write() {
  use(nullptr);
  if (const Handle current = current_.lock()) {
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < state_.optimizer().parameters().size(); ++i) {
      const Tensor own = value(i).detach();
      values.push_back(empty_like(own));
      copy_into(values.back(), own);
    }
    fill(*current, std::move(values));
  }
  current_.reset();
  ++writes_;
}

void WeightSnapshots::exchange(Weights& weights) {
  ExecutionContext& context = state_.model().context();
  const auto copy = [&](const TensorView& to, const TensorView& from) {
    context.backend().copy(context.kernel_context(), to, from);
  };
  for (std::size_t i = 0; i < weights.values.size(); ++i) {
    const TensorView kept = weights.values[i].view(), own = value(i).view();
    if (own.numel() == 0) continue;
    const TensorView spare =
        make_view(weights.scratch.view().data, own.dtype, own.shape, weights.scratch.device());
    copy(spare, own);
    copy(own, kept);
    copy(kept, spare);
  }
}

void WeightSnapshots::use(const Handle& weights) {
  const Handle wanted = weights && !weights->values.empty() ? weights : nullptr;
  if (wanted == in_place_) return;
  if (in_place_) exchange(*in_place_);
  in_place_ = wanted;
  if (in_place_) exchange(*in_place_);
}

}  // namespace meshloom::train
