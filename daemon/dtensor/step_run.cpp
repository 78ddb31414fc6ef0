// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/step_run.h"

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::StepKind;

std::byte* element(const Tensor& tensor, std::int64_t index) {
  return tensor.data<std::byte>() + index * static_cast<std::int64_t>(dtype_size(tensor.dtype()));
}

/// Sets the views' memory: pieces of `direct` if a message is one, else `staged` in turn, but
/// for message `skip`, which has memory elsewhere.
void place(const std::vector<Message>& messages, std::vector<TensorView>& views,
           const Tensor& direct, const Tensor& staged, int skip) {
  std::int64_t used = 0;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    TensorView& view = views[m];
    view.dtype = direct.dtype();
    view.device = direct.device();
    if (messages[m].direct >= 0) {
      view.data = element(direct, messages[m].direct);
    } else if (static_cast<int>(m) != skip) {
      view.data = element(staged, used);
      used += messages[m].numel;
    }
  }
}

constexpr int kNone = -1;

}  // namespace

StepRun::StepRun(StepRecipe& recipe, Tensor input, bool may_overwrite)
    : recipe_(recipe), input_(std::move(input)) {
  if (!(input_.shape() == recipe.in_shape))
    throw InvalidArgument(
        fmt::format("redistribute: the local tensor is {}, layout {} of {} has {} here",
                    to_string(input_.shape()), to_string(*recipe.from),
                    to_string(recipe.from->shape()), to_string(recipe.in_shape)));
  if (recipe.nothing) {
    output_ = input_;
    return;
  }
  switch (recipe.kind) {
    case StepKind::kAllReduce:
      if (may_overwrite && input_.contiguous()) {
        output_ = input_;
      } else {
        output_ = empty_like(input_);
        copy_into(output_, input_);
      }
      work_ = recipe.group->all_reduce(output_.view(), recipe.reduce);
      break;
    case StepKind::kReduceScatter: issue_reduce_scatter(); break;
    case StepKind::kAllGather: issue_all_gather(); break;
    case StepKind::kAllToAll:
    case StepKind::kSendRecv: issue_exchange(); break;
    case StepKind::kSlice:
      output_ = empty(input_.context(), recipe.out_shape, input_.dtype());
      copy_boxes(input_.context().kernel_context(), input_.context().backend(), recipe.own,
                 output_.view(), input_.view());
      break;
    case StepKind::kToPartial: to_partial(); break;
    case StepKind::kConvertPartial:
      output_ = recipe.scale == 1.0 ? input_ : ops::mul(input_, recipe.scale);
      break;
  }
}

Tensor StepRun::staging(std::int64_t elements) const {
  return elements == 0 ? Tensor() : empty(input_.context(), {elements}, input_.dtype());
}

void StepRun::issue_all_gather() {
  input_ = ops::contiguous(input_);
  output_ = empty(input_.context(), recipe_.out_shape, input_.dtype());
  staged_in_ = staging(recipe_.staged_in);
  const int own = recipe_.group->rank();
  place(recipe_.receives, recipe_.receive_views, output_, staged_in_, own);
  const auto index = static_cast<std::size_t>(own);
  if (recipe_.receives[index].direct < 0) recipe_.receive_views[index].data = input_.view().data;
  work_ = recipe_.group->all_gather(recipe_.receive_views, input_.view());
}

void StepRun::issue_reduce_scatter() {
  input_ = ops::contiguous(input_);
  output_ = empty(input_.context(), recipe_.out_shape, input_.dtype());
  staged_out_ = staging(recipe_.staged_out);
  place(recipe_.sends, recipe_.send_views, input_, staged_out_, kNone);
  ExecutionContext& context = input_.context();
  for (std::size_t m = 0; m < recipe_.sends.size(); ++m) {
    const Message& message = recipe_.sends[m];
    if (message.direct >= 0) continue;
    const TensorView& view = recipe_.send_views[m];
    copy_boxes(context.kernel_context(), context.backend(), message.boxes,
               make_view(view.data, view.dtype, message.shape, view.device), input_.view());
  }
  work_ = recipe_.group->reduce_scatter(output_.view(), recipe_.send_views, recipe_.reduce);
}

void StepRun::issue_exchange() {
  input_ = ops::contiguous(input_);
  output_ = empty(input_.context(), recipe_.out_shape, input_.dtype());
  staged_in_ = staging(recipe_.staged_in);
  staged_out_ = staging(recipe_.staged_out);
  place(recipe_.sends, recipe_.send_views, input_, staged_out_, kNone);
  place(recipe_.receives, recipe_.receive_views, output_, staged_in_, kNone);
  ExecutionContext& context = input_.context();
  for (std::size_t m = 0; m < recipe_.sends.size(); ++m)
    if (recipe_.sends[m].direct < 0)
      pack_boxes(context.kernel_context(), context.backend(), recipe_.sends[m].boxes,
                 recipe_.send_views[m].data, input_.view());
  work_ = recipe_.kind == StepKind::kAllToAll
              ? recipe_.group->all_to_all(recipe_.receive_views, recipe_.send_views)
              : recipe_.group->send_recv(recipe_.receive_views, recipe_.send_views);
  copy_boxes(context.kernel_context(), context.backend(), recipe_.own, output_.view(),
             input_.view());
}

void StepRun::to_partial() {
  // A shard of all elements may hold them in an order of its own.
  const bool alike = recipe_.in_shape == recipe_.out_shape && recipe_.own.size() <= 1;
  if (recipe_.holds_value && alike) {
    output_ = input_;
    return;
  }
  output_ = zeros(input_.context(), recipe_.out_shape, input_.dtype());
  if (recipe_.holds_value)
    copy_boxes(input_.context().kernel_context(), input_.context().backend(), recipe_.own,
               output_.view(), input_.view());
}

Tensor StepRun::finish() {
  if (work_ == nullptr) return std::move(output_);
  ExecutionContext& context = input_.context();
  work_->enqueue_wait(context.kernel_context().stream);
  work_.reset();
  // What came into memory of its own is copied to where it belongs.
  const bool gathers = recipe_.kind == StepKind::kAllGather;
  std::int64_t used = 0;
  for (std::size_t m = 0; m < recipe_.receives.size(); ++m) {
    const Message& message = recipe_.receives[m];
    if (message.direct >= 0) continue;
    const bool own = gathers && static_cast<int>(m) == recipe_.group->rank();
    std::byte* memory = own ? input_.data<std::byte>() : element(staged_in_, used);
    if (!own) used += message.numel;
    const auto& kernels = context.kernel_context();
    if (gathers)
      copy_boxes(kernels, context.backend(), message.boxes, output_.view(),
                 make_view(memory, input_.dtype(), message.shape, input_.device()));
    else
      unpack_boxes(kernels, context.backend(), message.boxes, output_.view(), memory);
  }
  if (recipe_.scale != 1.0) return ops::mul(output_, recipe_.scale);
  return std::move(output_);
}

}  // namespace meshloom::dtensor
