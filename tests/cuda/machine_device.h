// The device cuda on the machine for tests, as a program opens it: whoever runs these tests says by EPL_TEST_MACHINE
// and LD_LIBRARY_PATH which GPUs there are (tests/CMakeLists.txt). Elsewhere they are skipped.
#pragma once

#include <dlfcn.h>

#include <string>

#include "tests/runtime/trained.h"

namespace epl {

class MachineDevice : public testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device("cuda:0", host(), {});
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library_ == nullptr || ::dlsym(library_, "epl_test_machine_set") == nullptr)
      GTEST_SKIP() << "the driver is a real one";
  }

  static Host host() {
    Host made = test_host(2);
    made.packs = EPL_PACK_FOLDER;
    made.kernel_cache = EPL_TEST_KERNELS;
    return made;
  }
  // Of a small model at a level.
  static Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, std::string_view model,
                                                             int64_t ranks = 1, const std::string& keys = "",
                                                             const char* level = "exact") {
    EPL_ASSIGN(PlanOptions options, layout_options(GraphModel::parse(model), ranks, at_level(level, keys)));
    options.device = device;
    return CompiledPlan::create(host(), options);
  }

  void set(const std::string& words) {
    ASSERT_EQ(reinterpret_cast<int (*)(const char*)>(::dlsym(library_, "epl_test_machine_set"))(words.c_str()), 0);
  }
  uint64_t count(const char* what) {
    return reinterpret_cast<uint64_t (*)(const char*)>(::dlsym(library_, "epl_test_machine_count"))(what);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace epl
