// A GPU for tests, made of the host's compiler: the texts of kernels are C++, which it compiles with a few definitions
// in front. The threads of a block run one after another; where they wait for each other they take turns.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/generate/program.h"
#include "core/base/text.h"
#include "tests/temporary_folder.h"

namespace epl::cuda {

// What stands in front of the texts: the language's own words, and threads that take turns at barriers.
inline constexpr std::string_view host_prelude = R"text(
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <array>
#include <bit>
#include <limits>
#include <vector>
#define __global__
#define __device__
#define __shared__ static
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))
struct float4 { float x, y, z, w; };
struct Place { unsigned x = 0, y = 0, z = 0; };
static Place threadIdx, blockIdx, blockDim, gridDim;
static bool takes_turns = false;
static ucontext_t scheduler, *running;
static void __syncthreads() { if (takes_turns) swapcontext(running, &scheduler); }
// Both threads are of one warp, so that they take as many turns.
static float shuffled[1024];
static float shuffle(float value, unsigned from) {
  shuffled[threadIdx.x] = value;
  __syncthreads();
  const float found = shuffled[from];
  __syncthreads();
  return found;
}
static float __shfl_xor_sync(unsigned, float value, int mask, int) {
  return shuffle(value, threadIdx.x ^ unsigned(mask));
}
static float __shfl_down_sync(unsigned, float value, int by, int width) {
  const unsigned last = threadIdx.x / unsigned(width) * unsigned(width) + unsigned(width) - 1;
  return shuffle(value, threadIdx.x + unsigned(by) > last ? threadIdx.x : threadIdx.x + unsigned(by));
}
static float __shfl_sync(unsigned, float value, int lane, int width) {
  return shuffle(value, threadIdx.x / unsigned(width) * unsigned(width) + unsigned(lane));
}
static int atomicMax(int* at, int value) { int old = *at; if (value > old) *at = value; return old; }
static int atomicMin(int* at, int value) { int old = *at; if (value < old) *at = value; return old; }
#line 1 "text"
)text";

inline constexpr std::string_view host_epilogue = R"text(
template <size_t... i> static void call_with(void* f, void** a, std::index_sequence<i...>) {
  using Any = void*;
  reinterpret_cast<void (*)(decltype((void)i, Any())...)>(f)(a[i]...);
}
template <int most = 48> static void call(void* f, void** a, int n) {
  if constexpr (most >= 0) {
    if (n == most) return call_with(f, a, std::make_index_sequence<most>());
    call<most - 1>(f, a, n);
  }
}
struct Turn { void* f; void** a; int n; bool done; };
static void run_turn(unsigned low, unsigned high) {
  auto* turn = reinterpret_cast<Turn*>(uintptr_t(low) | uintptr_t(high) << 32);
  call(turn->f, turn->a, turn->n);
  turn->done = true;
  swapcontext(running, &scheduler);
}
extern "C" void epl_host_launch(int body, const char* entry, const unsigned* grid, const unsigned* block, void** a,
                                int n, bool barriers) {
  void* f = nullptr;
  for (const Entry& e : entries) if (e.body == body && !strcmp(e.name, entry)) f = e.f;
  if (!f) __builtin_trap();
  takes_turns = barriers;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  const unsigned threads = block[0] * block[1] * block[2];
  constexpr size_t stack = 128 << 10;
  std::vector<char> stacks(barriers ? threads * stack : 0);
  std::vector<ucontext_t> contexts(barriers ? threads : 0);
  std::vector<Turn> turns(threads);
  for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) {
        const auto place = [&](unsigned t) {
          threadIdx = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};
        };
        if (!barriers) {
          for (unsigned t = 0; t < threads; ++t) place(t), call(f, a, n);
          continue;
        }
        for (unsigned t = 0; t < threads; ++t) {
          turns[t] = {f, a, n, false};
          getcontext(&contexts[t]);
          contexts[t].uc_stack.ss_sp = stacks.data() + t * stack;
          contexts[t].uc_stack.ss_size = stack;
          contexts[t].uc_link = &scheduler;
          const auto p = reinterpret_cast<uintptr_t>(&turns[t]);
          makecontext(&contexts[t], reinterpret_cast<void (*)()>(run_turn), 2, unsigned(p), unsigned(p >> 32));
        }
        for (bool left = true; left;) {
          left = false;
          for (unsigned t = 0; t < threads; ++t) {
            if (turns[t].done) continue;
            place(t);
            running = &contexts[t];
            swapcontext(&scheduler, running);
            left |= !turns[t].done;
          }
        }
      }
}
)text";

class HostMachine {
 public:
  // The number of a launch's text, among those that `build` compiles.
  int add(const Launch& launch) {
    const size_t at = launch.source.find(body_begins);
    if (at == std::string::npos) return -1;
    const size_t from = at + body_begins.size();
    std::string body = launch.source.substr(from, launch.source.rfind(body_ends) - from);
    const auto [it, is_new] = numbers_.emplace(std::move(body), static_cast<int>(numbers_.size()));
    return it->second;
  }

  // Empty, or what the compiler said.
  std::string build(const std::string& files) {
    std::string text = std::string(host_prelude) + files;
    std::string table = "struct Entry { int body; const char* name; void* f; };\nstatic const Entry entries[] = {\n";
    std::vector<const std::string*> bodies(numbers_.size());
    for (const auto& [body, number] : numbers_) bodies[static_cast<size_t>(number)] = &body;
    constexpr std::string_view head = "extern \"C\" __global__ void ";
    for (size_t i = 0; i < bodies.size(); ++i) {
      std::string body = *bodies[i];
      constexpr std::string_view bounds = "__launch_bounds__(256, 2) ";
      for (size_t at = body.find(bounds); at != std::string::npos; at = body.find(bounds))
        body.erase(at, bounds.size());
      for (size_t at = body.find(head); at != std::string::npos; at = body.find(head, at)) {
        body.replace(at, head.size(), "void ");
        const std::string name = body.substr(at + 5, body.find('(', at) - at - 5);
        table += cat("{", i, ", \"", name, "\", (void*)&body_", i, "::", name, "},\n");
      }
      text += cat("namespace body_", i, " {\nusing namespace epl::cuda;\n", body, "}\n");
    }
    text += table + "};\n" + std::string(host_epilogue);
    const std::string source = folder_ / "kernels.cc", library = folder_ / "kernels.so", log = folder_ / "log";
    std::ofstream(source) << text;
    // Of a template's shared memory each library has its own.
    const std::string command =
        cat("g++ -std=c++20 -O1 -fno-strict-aliasing -fno-gnu-unique -w -mfma -ffp-contract=off -shared -fPIC ", source,
            " -o ", library, " > ", log, " 2>&1");
    if (std::system(command.c_str()) != 0) {
      std::ifstream in(log);
      return std::string(std::istreambuf_iterator<char>(in), {}).substr(0, 4000) + source;
    }
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return dlerror();
    launch_ = reinterpret_cast<Run>(dlsym(handle, "epl_host_launch"));
    return {};
  }

  // Absent operands are null.
  void run(const Kernel& kernel, const std::vector<int>& numbers, const std::vector<const void*>& inputs,
           const std::vector<void*>& outputs, std::byte* room, const StepBlock& step) const {
    for (size_t i = 0; i < kernel.launches.size(); ++i) {
      const Launch& launch = kernel.launches[i];
      if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) continue;
      std::vector<void*> values;
      for (const Argument& a : launch.arguments) values.push_back(value_of(a, inputs, outputs, room, step));
      const bool waits =
          launch.source.find("__syncthreads") != std::string::npos || launch.source.find("__shfl") != std::string::npos;
      launch_(numbers[i], launch.entry.c_str(), launch.grid.data(), launch.block.data(), values.data(),
              static_cast<int>(values.size()), waits);
    }
  }

 private:
  using Run = void (*)(int, const char*, const unsigned*, const unsigned*, void**, int, bool);

  static void* value_of(const Argument& a, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                        std::byte* room, const StepBlock& step) {
    const auto at = static_cast<size_t>(a.value);
    switch (a.kind) {
      case Argument::Kind::input:
        return at < inputs.size() ? const_cast<void*>(inputs[at]) : nullptr;
      case Argument::Kind::output:
        return at < outputs.size() ? outputs[at] : nullptr;
      case Argument::Kind::workspace:
        return room + a.value;
      case Argument::Kind::step:
        return const_cast<StepBlock*>(&step);
      case Argument::Kind::number:
        return reinterpret_cast<void*>(a.value);
      default:
        return nullptr;
    }
  }

  TemporaryFolder folder_;
  std::map<std::string, int> numbers_;
  Run launch_ = nullptr;
};

}  // namespace epl::cuda
