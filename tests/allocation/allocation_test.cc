// Between the first and the last instruction of a step nothing allocates. Every way to the heap is counted, on every
// thread: operator new, and malloc and its kin, which this program replaces by counting ones. What the other tests of
// the program want to know of the heap stands in tests/allocation/heap.h.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>

#include "core/ir/meaning.h"
#include "core/ops/sample.h"
#include "core/runtime/session.h"
#include "tests/allocation/heap.h"
#include "tests/runtime/graph_model.h"
#include "tests/temporary_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EPL_HEAP_IS_TAKEN 1  // the sanitizer has its own malloc
#endif

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> in_use{0}, most{0};
void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
#ifndef EPL_HEAP_IS_TAKEN
void* given(void* memory) {
  count();
  const auto bytes = static_cast<int64_t>(::malloc_usable_size(memory));
  const int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t before = most.load(std::memory_order_relaxed);
  while (before < now && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) continue;
  return memory;
}
void taken_back(void* memory) {
  in_use.fetch_sub(static_cast<int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
}
#endif
}  // namespace

namespace epl {
#ifdef EPL_HEAP_IS_TAKEN
bool heap_is_counted() { return false; }
#else
bool heap_is_counted() { return true; }
#endif
int64_t most_heap_of(FunctionRef<void()> work) {
  const int64_t before = in_use.load();
  most = before;
  work();
  return most.load() - before;
}
}  // namespace epl

#ifndef EPL_HEAP_IS_TAKEN
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
void* malloc(size_t bytes) { return given(__libc_malloc(bytes)); }
void* calloc(size_t items, size_t bytes) { return given(__libc_calloc(items, bytes)); }
void* realloc(void* old, size_t bytes) {
  taken_back(old);
  return given(__libc_realloc(old, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) { return given(__libc_memalign(alignment, bytes)); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = given(__libc_memalign(alignment, bytes));
  return *out ? 0 : 12;
}
void free(void* memory) {
  taken_back(memory);
  __libc_free(memory);
}
}
#endif

namespace epl::allocation_test {
namespace {

// A little of everything that trains: embedding, norm, attention, linear layers, dropout, loss, clipping.
constexpr std::string_view model = R"(graph tiny(tokens: i64[4,8] batch 0) {
  table: f32[32,16] = param
  scale: f32[16] = param
  shift: f32[16] = param
  w: f32[16,16] = param
  head: f32[16,32] = param
  forward:
  x: f32[4,8,16] = gather(table, tokens)
  n: f32[4,8,16], n.mean: f32[4,8,1], n.rstd: f32[4,8,1] = layer_norm(x, scale, shift)
  q: f32[4,8,16] = linear(n, w)
  h: f32[4,8,2,8] = reshape(q) {shape=[4,8,2,8]}
  t: f32[4,2,8,8] = transpose(h) {perm=[0,2,1,3]}
  a: f32[4,2,8,8], a.lse: f32[4,2,8] = attention(t, t, t) {scale=0.35, causal=true}
  b: f32[4,8,2,8] = transpose(a) {perm=[0,2,1,3]}
  c: f32[4,8,16] = reshape(b) {shape=[4,8,16]}
  g: f32[4,8,16] = gelu(c)
  d: f32[4,8,16], d.mask: bool[4,8,16] = dropout(g) {ratio=0.1}
  r: f32[4,8,16] = add(x, d)
  y: f32[4,8,32] = linear(r, head)
  output y = y
}
)";

struct Steps {
  int64_t ranks = 1;
  const char* micro_batches = "1";
  int threads = 1;
  DType precision = DType::f32;
  std::string strategy = "{}";
  bool narrow_states = false;  // in bf16
  bool references = false;     // some ops may have no kernel here: references serve, which allocate nothing either
};

void steps_allocate_nothing(const Steps& steps) {
  PlanOptions options;
  options.model = GraphModel::parse(model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  if (steps.narrow_states) options.train.optimizer_options.set("state_type", std::string("bf16"));
  options.train.clip_norm = 1.0;
  options.train.precision = steps.precision;
  options.ranks = steps.ranks;
  auto parsed = parse_strategy(steps.strategy);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  options.strategy = *std::move(parsed);
  ASSERT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", steps.micro_batches).ok());
  auto plan = CompiledPlan::create(test_host(steps.threads), options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  for (const Instruction& in : (*plan)->entries()[0].programs[0].instructions) {
    if (steps.references) break;
    ASSERT_TRUE(!in.row || in.row->name != "reference") << in.name << " (" << in.query->op << ") has no kernel";
  }
  auto session = Session::create(test_host(steps.threads), *plan, {.seed = 1});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Tensor tokens(TensorType{DType::i64, {4, 8}}), target(TensorType{DType::i64, {4, 8}});
  for (int i = 0; i < 32; ++i) tokens.set_int(i, i * 7 % 32), target.set_int(i, i * 5 % 32);
  const Tensor inputs[] = {tokens, target};
  StepMetrics metrics;
  ASSERT_TRUE((*session)->step(inputs, metrics).ok());
  allocations = 0;
  counting = true;
  Status status;
  for (int s = 1; s < 20 && status.ok(); ++s) status = (*session)->step(inputs, metrics);
  counting = false;
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(allocations.load(), 0);
}

TEST(Allocation, TheCounterCounts) {
#ifdef EPL_HEAP_IS_TAKEN
  GTEST_SKIP() << "a sanitizer owns malloc in this build";
#else
  allocations = 0;
  counting = true;
  void* volatile p = std::malloc(64);
  int* volatile q = new int(1);
  counting = false;
  std::free(p);
  delete q;
  EXPECT_EQ(allocations.load(), 2);
#endif
}

TEST(Allocation, StepsOfOneRank) { steps_allocate_nothing({.threads = 2}); }
TEST(Allocation, StepsOfMicroBatches) { steps_allocate_nothing({.micro_batches = "2"}); }
TEST(Allocation, StepsOfTwoRanks) { steps_allocate_nothing({.ranks = 2, .micro_batches = "2", .threads = 2}); }
TEST(Allocation, StepsOfStages) {
  steps_allocate_nothing({.ranks = 2,
                          .micro_batches = "2",
                          .threads = 2,
                          .strategy = R"({"scopes": [{"replicate": 1, "match": ["x", "n", "q", "h", "t"]},
                                                     {"replicate": 1, "match": ["*"]}]})"});
}
TEST(Allocation, StepsInFloat64) {
  steps_allocate_nothing({.micro_batches = "2", .threads = 2, .precision = DType::f64, .references = true});
}

// What saves memory, each by itself and all at once.
constexpr const char* saving[] = {
    R"("amp.level": "O1")", R"("amp.level": "O1", "amp.type": "f16", "amp.loss_scale": "1024")",
    R"("zero.level": "v1")", R"("zero.level": "v2")", R"("gradient_checkpoint.type": "auto")"};
TEST(Allocation, StepsWithLessMemory) {
  for (const char* keys : saving) {
    SCOPED_TRACE(keys);
    steps_allocate_nothing(
        {.ranks = 2, .micro_batches = "2", .threads = 2, .strategy = cat("{", keys, "}"), .references = true});
  }
}
TEST(Allocation, StepsWithStatesInBf16) {
  steps_allocate_nothing({.ranks = 2, .micro_batches = "2", .threads = 2, .narrow_states = true, .references = true});
}

std::string offload_to(const TemporaryFolder& folder) {
  return cat(R"("offload.level": "v0", "offload.values": "states, weights, gradients, activations", )",
             "\"offload.folder\": \"", folder.path(), "\"");
}
TEST(Allocation, StepsWithValuesInFiles) {
  const TemporaryFolder folder;
  steps_allocate_nothing({.micro_batches = "2", .threads = 2, .strategy = cat("{", offload_to(folder), "}")});
}
TEST(Allocation, StepsWithAllThatSavesMemory) {
  const TemporaryFolder folder;
  steps_allocate_nothing({.ranks = 2,
                          .micro_batches = "2",
                          .threads = 2,
                          .strategy = cat(R"({"amp.level": "O1", "zero.level": "v2", )",
                                          R"("gradient_checkpoint.type": "auto", )", offload_to(folder), "}"),
                          .narrow_states = true,
                          .references = true});
}

// Every op's own meaning, made ready, on every sample of its record, in every float type.
TEST(Allocation, MeaningsOfOps) {
  int runs = 0;
  for (const OpDef* op : op_table().all()) {
    if (!op->elementwise() && !op->reference && !op->body) continue;
    for (const std::string& text : op->samples) {
      auto parsed = parse_sample(*op, text);
      ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
      for (DType type : {DType::f32, DType::f64, DType::bf16}) {
        const Sample sample = type == DType::f32 ? *parsed : parsed->with_floats(type);
        const std::vector<Tensor> inputs = sample.values(1);
        auto types = infer_types(*op, sample.attributes, sample.types());
        if (!types.ok()) continue;
        std::vector<const void*> sources;
        for (const Tensor& input : inputs) sources.push_back(input.empty() ? nullptr : input.data());
        std::vector<Tensor> outputs;
        std::vector<void*> targets;
        std::vector<const TensorType*> output_types;
        for (const TensorType& one : *types) output_types.push_back(&one);
        for (const TensorType& one : *types) outputs.emplace_back(one);
        for (Tensor& output : outputs) targets.push_back(output.data());
        auto meaning = Meaning::make(*op, sample.attributes, sample.types(), output_types, Units());
        ASSERT_TRUE(meaning.ok()) << op->name << ": " << meaning.status().to_string();
        std::vector<std::max_align_t> room(static_cast<size_t>((*meaning)->room_bytes()) / sizeof(std::max_align_t) +
                                           1);
        allocations = 0;
        counting = true;
        (*meaning)->run(sources.data(), targets.data(), 1, 0, room.data());
        counting = false;
        EXPECT_EQ(allocations.load(), 0) << op->name << " " << text;
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 800);
}

}  // namespace
}  // namespace epl::allocation_test
