// A training by the pack of planted_pack.cc, in which a function of its tables may be replaced: what came of it, and
// what the machine for tests has found.
#pragma once

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda/machine/rig.h"
#include "tests/cuda/planted_pack.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl::planted {

using namespace epl::cuda;

inline PackTables pack;  // of the pack that trains
inline Driver driver;    // the functions as they are
inline BlasLt blas;
inline Nccl nccl;
inline Dnn dnn;

// Which GPUs, how many ranks, at which level of bits, how long.
struct Training {
  const char* device;
  int64_t ranks;
  const char* level;
  int steps;
  const char* keys = "";
  std::string_view model = dropout_mlp;
};

class PlantedTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_rig::compile("extern \"C\" __global__ void nothing() {}", "nothing.cu", &why).empty()) GTEST_SKIP() << why;
    machine_ = ::dlopen(EPL_TEST_MACHINE, RTLD_NOW | RTLD_LOCAL);
    void* library = ::dlopen(EPL_TEST_PLANTED "/libepl_cuda.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(machine_ != nullptr && library != nullptr) << ::dlerror();
    set("reset devices=h100,h100 findings=/dev/null");
    auto* tables = reinterpret_cast<const char* (*)(const char*, PackTables*)>(::dlsym(library, "epl_planted_tables"));
    const char* missing = tables(EPL_TEST_PLANTED, &pack);
    ASSERT_EQ(missing, nullptr) << missing;
    driver = *pack.driver, blas = *pack.blas, nccl = *pack.nccl, dnn = *pack.dnn;
  }
  void TearDown() override {
    if (machine_ != nullptr) set("reset");
  }
  void set(const char* words) {
    ASSERT_EQ(reinterpret_cast<int (*)(const char*)>(::dlsym(machine_, "epl_test_machine_set"))(words), 0);
  }
  std::string said(const char* by) { return reinterpret_cast<const char* (*)()>(::dlsym(machine_, by))(); }

  // What a training comes to: numbers, and what was found.
  struct Outcome {
    std::vector<double> losses;
    std::map<std::string, Tensor> state;
    std::string found;
  };
  // With what `plant` replaces; null: as it is. `seed`: of the order in which streams go on.
  Outcome outcome(const Training& training, void (*plant)(), int seed = 1) {
    set(cat("reset devices=h100,h100 findings=/dev/null seed=", seed).c_str());
    driver.init(0);
    if (plant != nullptr) plant();
    Outcome out;
    const Status status = train(training, out);
    // What is wrong ends here.
    *pack.driver = driver, *pack.blas = blas, *pack.nccl = nccl, *pack.dnn = dnn;
    if (!status.ok()) out.found += status.to_string() + "\n";
    const std::lock_guard lock(mutex_);
    out.found += said("epl_test_machine_findings") + (plant == nullptr ? "" : said("epl_test_machine_last_error"));
    if (plant != nullptr) out.found += log_;
    log_.clear();
    return out;
  }

  Status train(const Training& training, Outcome& out) {
    Host host = test_host(2);
    host.packs = EPL_TEST_PLANTED;
    host.kernel_cache = EPL_TEST_KERNELS;
    host.least_logged = LogLevel::info;
    host.log = [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_ += cat(line, "\n");
    };
    EPL_ASSIGN(PlanOptions options, layout_options(GraphModel::parse(training.model), training.ranks,
                                                   at_level(training.level, training.keys)));
    options.device = training.device;
    const auto plan = CompiledPlan::create(host, options);
    Status status = plan.status();
    if (plan.ok()) {
      const auto session = Session::create(host, *plan, {.seed = 7});
      status = session.status();
      for (int step = 0; status.ok() && step < training.steps; ++step) {
        StepMetrics metrics;
        status = (*session)->step(skip_mlp_batch(step), metrics);
        if (status.ok()) status = metrics.skipped;
        out.losses.push_back(metrics.loss);
      }
      for (const StateSlot& slot : (*plan)->state().slots()) {
        if (!status.ok()) break;
        const auto value = (*session)->state().get(slot.name);
        status = value.status();
        if (value.ok()) out.state.emplace(slot.name, *value);
      }
    }
    return status;
  }

  // One of the words, with | between them.
  static bool has_any(const std::string& text, std::string_view words) {
    for (size_t end = 0; end != words.npos; words.remove_prefix(end == words.npos ? 0 : end + 1)) {
      end = words.find('|');
      if (text.find(words.substr(0, end)) != text.npos) return true;
    }
    return false;
  }
  static bool same(const Outcome& a, const Outcome& b) {
    return a.losses == b.losses && std::ranges::equal(a.state, b.state, [](const auto& x, const auto& y) {
             return x.first == y.first && identical(x.second, y.second);
           });
  }

 private:
  std::mutex mutex_;
  std::string log_;
  void* machine_ = nullptr;
};

}  // namespace epl::planted
