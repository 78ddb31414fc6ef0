// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_onednn.h"

#include <dnnl.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace meshloom::kernels::cpu {
namespace {

// No limit: `all` in oneDNN 2, `isa_default` in oneDNN 3.
constexpr auto kAnyIsa = static_cast<dnnl::cpu_isa>(0);

dnnl::cpu_isa isa_of(CpuClass cpu_class) {
  switch (cpu_class) {
    case CpuClass::kSse4: return dnnl::cpu_isa::sse41;
    case CpuClass::kAvx2: return dnnl::cpu_isa::avx2;
    case CpuClass::kAvx512: return dnnl::cpu_isa::avx512_core;
    case CpuClass::kAvx512Bf16: return dnnl::cpu_isa::avx512_core_bf16;
    case CpuClass::kAmx: break;
  }
  return kAnyIsa;
}

using dnnl::memory;

// Everything a primitive is compiled for.
struct Key {
  std::int64_t m, n, k, lda, ldb, ldy;
  std::int64_t flags;  // transpositions, beta, dtypes, bias, threads

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::int64_t value : {key.m, key.n, key.k, key.lda, key.ldb, key.ldy, key.flags})
      hash = hash_mix(hash, static_cast<std::uint64_t>(value));
    return hash;
  }
};

Key key_of(const Gemm& g, const OneDnnTypes& types, Threads threads) {
  const auto bits = [](auto value, int shift) { return static_cast<std::int64_t>(value) << shift; };
  return {g.m,
          g.n,
          g.k,
          g.a.ld,
          g.b.ld,
          g.ldy,
          bits(g.a.transposed, 0) | bits(g.b.transposed, 1) | bits(g.beta != 0.0f, 2) |
              bits(types.with_bias, 3) | bits(types.operands, 8) | bits(types.y, 16) |
              bits(threads.count, 24)};
}

memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return memory::data_type::f32;
    case DType::kBFloat16: return memory::data_type::bf16;
    case DType::kFloat16: return memory::data_type::f16;
    default: break;
  }
  throw InternalError(fmt::format("matmul: oneDNN has no dtype {}", dtype_name(dtype)));
}

memory::desc operand_desc(const GemmOperand& operand, std::int64_t rows, std::int64_t columns,
                          DType dtype) {
  const memory::dims strides =
      operand.transposed ? memory::dims{1, operand.ld} : memory::dims{operand.ld, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::matmul::primitive_desc make_desc(const Gemm& g, const OneDnnTypes& types) {
  const memory::desc a = operand_desc(g.a, g.m, g.k, types.operands);
  const memory::desc b = operand_desc(g.b, g.k, g.n, types.operands);
  const memory::desc y({g.m, g.n}, type_of(types.y), memory::dims{g.ldy, 1});
  const memory::desc bias =
      types.with_bias ? memory::desc({1, g.n}, type_of(types.operands), memory::dims{g.n, 1})
                      : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (g.beta != 0.0f) {
    dnnl::post_ops operations;
    operations.append_sum(1.0f);
    attributes.set_post_ops(operations);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), a, b, bias, y, attributes};
#else
  return {{a, b, bias, y}, attributes, cpu_engine()};
#endif
}

struct Compiled {
  Compiled(const Gemm& g, const OneDnnTypes& types) : desc(make_desc(g, types)), primitive(desc) {}

  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

// The primitives used last. A training step needs a few dozen; generation with growing sequences
// makes new ones all the time, so the oldest leave.
class PrimitiveCache {
 public:
  std::shared_ptr<const Compiled> get(const Gemm& g, const OneDnnTypes& types, Threads threads) {
    const Key key = key_of(g, types, threads);
    const std::lock_guard lock(mutex_);
    if (const auto found = index_.find(key); found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second;
    }
    entries_.emplace_front(key, std::make_shared<const Compiled>(g, types));
    index_[key] = entries_.begin();
    if (entries_.size() > kMost) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

 private:
  static constexpr std::size_t kMost = 512;
  using Entries = std::list<std::pair<Key, std::shared_ptr<const Compiled>>>;

  std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, KeyHash> index_;
};

PrimitiveCache& primitive_cache() {
  static PrimitiveCache cache;
  return cache;
}

char transpose(const GemmOperand& operand) { return operand.transposed ? 'T' : 'N'; }

}  // namespace

void lower_onednn(CpuClass cpu_class) { dnnl::set_max_cpu_isa(isa_of(cpu_class)); }

void onednn_sgemm(const Gemm& g) {
  const dnnl_status_t status = dnnl_sgemm(
      transpose(g.a), transpose(g.b), g.m, g.n, g.k, g.alpha, static_cast<const float*>(g.a.data),
      g.a.ld, static_cast<const float*>(g.b.data), g.b.ld, g.beta, static_cast<float*>(g.y), g.ldy);
  check_internal(status == dnnl_success, "matmul: oneDNN sgemm [{}, {}, {}] failed with status {}",
                 g.m, g.n, g.k, static_cast<int>(status));
}

std::size_t onednn_matmul_scratch_bytes(const Gemm& g, const OneDnnTypes& types, Threads threads) {
  return primitive_cache().get(g, types, threads)->desc.scratchpad_desc().get_size();
}

void onednn_matmul(const Gemm& g, const OneDnnTypes& types, const void* bias, Threads threads,
                   std::byte* scratch) {
  const std::shared_ptr<const Compiled> compiled = primitive_cache().get(g, types, threads);
  const dnnl::engine& engine = cpu_engine();
  const auto bind = [&](const memory::desc& desc, const void* data) {
    return memory(desc, engine, const_cast<void*>(data));
  };
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, bind(compiled->desc.src_desc(), g.a.data)},
      {DNNL_ARG_WEIGHTS, bind(compiled->desc.weights_desc(), g.b.data)},
      {DNNL_ARG_DST, bind(compiled->desc.dst_desc(), g.y)},
      {DNNL_ARG_SCRATCHPAD, bind(compiled->desc.scratchpad_desc(), scratch)}};
  if (types.with_bias) arguments.emplace(DNNL_ARG_BIAS, bind(compiled->desc.bias_desc(), bias));
  dnnl::stream stream(engine);
  compiled->primitive.execute(stream, arguments);
  stream.wait();
}

}  // namespace meshloom::kernels::cpu
