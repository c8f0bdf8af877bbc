// Recipes ready to run. One kernel serves all ranks of a process at once: each call takes a set of oneDNN's memory
// objects of its own, kept for the next call, so that after a session's first step none is made.
#pragma once

#include <iterator>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/onednn/recipe.h"

namespace epl::onednn {

class Kernel {
 public:
  explicit Kernel(const Recipes& recipes);
  // 0, or the dnnl_status_t of a primitive that failed.
  int32_t run(const epl_pack_call& call) const;

 private:
  struct Step {
    dnnl::primitive primitive;
    std::vector<Recipe::Argument> arguments;
  };
  using Share = std::vector<Step>;
  // What one call needs: a stream, and for each step of each share its arguments, with addresses that are set anew.
  struct Arguments {
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> list;
  };
  struct Caller {
    dnnl::stream stream;
    std::vector<std::vector<Arguments>> shares;
  };
  struct Task;
  std::unique_ptr<Caller> make_caller() const;
  std::unique_ptr<Caller> take_caller() const;
  void keep_caller(std::unique_ptr<Caller> caller) const;
  static int32_t run_share(const Task& task, size_t share);

  std::vector<Share> shares_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Caller>> idle_;
  mutable size_t callers_ = 0;
};

using MakeRecipes = Recipes (*)(const Query&);

// Writes what went wrong, inside a catch block.
void write_reason(const epl_pack_reason* reason) noexcept;

// What a row needs, from the recipes of its op. Nothing leaves the pack as an exception.
template <MakeRecipes make>
void* prepare(const epl_pack_kernel* /*row*/, const epl_pack_query* query, epl_pack_needs* needs,
              const epl_pack_reason* refusal) noexcept {
  try {
    const OneThread scope;
    const Recipes recipes = make(Query(*query));
    needs->workspace_bytes = recipes.workspace_bytes();
    return new Kernel(recipes);
  } catch (...) {
    write_reason(refusal);
    return nullptr;
  }
}

void destroy(void* kernel) noexcept;
int32_t launch(const void* kernel, const epl_pack_call* call) noexcept;

inline constexpr int32_t dtypes[] = {EPL_PACK_F32, EPL_PACK_BF16};

template <MakeRecipes make> constexpr epl_pack_kernel row(const char* op, const char* name) {
  return {.struct_size = sizeof(epl_pack_kernel),
          .op = op,
          .name = name,
          .dtypes = dtypes,
          .dtype_count = std::size(dtypes),
          .prepare = prepare<make>,
          .destroy = destroy,
          .launch = launch,
          .context = nullptr};
}

}  // namespace epl::onednn
