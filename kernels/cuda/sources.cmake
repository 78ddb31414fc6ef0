# SPDX-License-Identifier: Apache-2.0
# The sources of the CUDA backend, for all who build it: the plugin, and the tests' emulated device.
#   MESHLOOM_CUDA_KERNELS       .cu files
#   MESHLOOM_CUDA_HOST          .cpp files that need CUDA's runtime API alone
#   MESHLOOM_CUDA_LIBRARY_HOST  .cpp files of the plugin alone: they need cuBLASLt or cuDNN, or the emulated device
#                               has functions of its own for them
set(MESHLOOM_CUDA_KERNELS
  attention/attention_delta.cu
  attention/flash_any_backward.cu
  attention/flash_any_forward.cu
  attention/flash_bfloat16_backward.cu
  attention/flash_bfloat16_forward.cu
  attention/one_query.cu
  attention/spans.cu
  matmul/bias_gelu.cu
  matmul/scale_product.cu
  copy.cu
  cross_entropy.cu
  elementwise.cu
  embedding.cu
  ids.cu
  norm.cu
  optimizer.cu
  output_loss.cu
  random.cu
  reduce.cu
  reduce_tensors.cu
  rope.cu
  softmax.cu)
set(MESHLOOM_CUDA_HOST
  attention/attention.cpp
  attention/attention_table.cpp
  attention/flash.cpp
  attention/head_views.cpp
  attention/one_query.cpp
  attention/sdpa_rule.cpp
  matmul/invariant_rows.cpp
  matmul/matmul.cpp
  matmul/matmul_layout.cpp
  matmul/matmul_plans.cpp
  matmul/matmul_table.cpp
  matmul/product.cpp
  matmul/product_choices.cpp
  matmul/scaled_matmul.cpp
  runtime/call_log.cpp
  runtime/check.cpp
  runtime/current_device.cpp
  runtime/pinned_ring.cpp
  runtime/segments.cpp
  runtime/streams.cpp
  copy.cpp
  cross_entropy.cpp
  cuda_backend.cpp
  elementwise.cpp
  embedding.cpp
  ids.cpp
  norm.cpp
  optimizer.cpp
  output_loss.cpp
  plugin.cpp
  random.cpp
  reduce.cpp
  rope.cpp
  softmax.cpp)
set(MESHLOOM_CUDA_LIBRARY_HOST
  attention/cudnn_plan.cpp
  matmul/cublaslt_plan.cpp
  runtime/kernel_names.cpp
  runtime/library_versions.cpp
  runtime/memory_watch.cpp)
foreach(list MESHLOOM_CUDA_KERNELS MESHLOOM_CUDA_HOST MESHLOOM_CUDA_LIBRARY_HOST)
  list(TRANSFORM ${list} PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
endforeach()
