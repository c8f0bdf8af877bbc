// For tests: the machine's library as a program sees the driver, and NVRTC where it is there.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/machine/control.h"

namespace epl::cuda_rig {

using Address = uint64_t;

// A driver with one context, begun anew. The functions are found by their names.
class Rig {
 public:
  explicit Rig(const std::string& settings = "seed=1") {
    library_ = ::dlopen(EPL_TEST_MACHINE, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    set("reset " + settings);
    want(call("cuInit", 0u));
    want(call("cuDevicePrimaryCtxRetain", &context, 0));
    want(call("cuCtxPushCurrent_v2", context));
  }
  ~Rig() {
    void* popped = nullptr;
    while (call("cuCtxPopCurrent_v2", &popped) == 0) {
    }
    set("reset");
  }
  Rig(const Rig&) = delete;

  template <class... Arguments> int call(const char* name, Arguments... arguments) {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("no function ") + name);
    return function(arguments...);
  }
  // A call that must not fail.
  void want(int code) {
    if (code != 0) throw std::runtime_error("error " + std::to_string(code) + ": " + last_error() + findings());
  }
  template <class... Arguments> void must(const char* name, Arguments... arguments) { want(call(name, arguments...)); }

  void set(const std::string& words) {
    if (call("epl_test_machine_set", words.c_str()) != 0) throw std::runtime_error("settings: " + words);
  }
  std::string findings() { return text("epl_test_machine_findings"); }
  std::string last_error() { return text("epl_test_machine_last_error"); }
  uint64_t count(const char* what) {
    return reinterpret_cast<uint64_t (*)(const char*)>(::dlsym(library_, "epl_test_machine_count"))(what);
  }

  Address allocate(size_t bytes) {
    Address address = 0;
    must("cuMemAlloc_v2", &address, bytes);
    return address;
  }
  template <class T> Address upload(const std::vector<T>& values) {
    const Address address = allocate(values.size() * sizeof(T));
    must("cuMemcpyHtoD_v2", address, static_cast<const void*>(values.data()), values.size() * sizeof(T));
    return address;
  }
  template <class T> std::vector<T> download(Address address, size_t count) {
    std::vector<T> values(count);
    must("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), address, count * sizeof(T));
    return values;
  }
  void* load(const std::string& ptx) {
    void* module = nullptr;
    must("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str()));
    return module;
  }
  void* function(const std::string& ptx, const char* name) {
    void* found = nullptr;
    must("cuModuleGetFunction", &found, load(ptx), name);
    return found;
  }
  void* stream(unsigned flags = 1) {
    void* made = nullptr;
    must("cuStreamCreate", &made, flags);
    return made;
  }
  void* event() {
    void* made = nullptr;
    must("cuEventCreate", &made, 2u);
    return made;
  }

  struct Size {
    unsigned grid = 1, block = 32, shared = 0;
    void* stream = nullptr;
  };
  template <class... Arguments> int launch(void* kernel, Size size, Arguments... arguments) {
    void* places[] = {&arguments..., nullptr};
    return call("cuLaunchKernel", kernel, size.grid, 1u, 1u, size.block, 1u, 1u, size.shared, size.stream,
                static_cast<void**>(places), static_cast<void**>(nullptr));
  }
  int synchronize() { return call("cuCtxSynchronize"); }

  void* context = nullptr;

 private:
  std::string text(const char* name) { return reinterpret_cast<const char* (*)()>(::dlsym(library_, name))(); }
  void* library_ = nullptr;
};

// The PTX of a kernel with an array of 32-bit numbers, made without a compiler: what `body` does with %r2, a thread
// does with the element of its own.
inline std::string ptx_for_each(const std::string& name, const std::string& body) {
  return ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry " + name + R"((.param .u64 p) {
.reg .b32 %r<3>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [p];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd1, %rd1, %rd2;
ld.global.u32 %r2, [%rd1];
)" + body +
         R"(
st.global.u32 [%rd1], %r2;
ret;
})";
}
inline const std::string increment_ptx = ptx_for_each("increment", "add.s32 %r2, %r2, 1;");

// The PTX of a text in CUDA C++, or "" and why there is none.
std::string compile(const std::string& source, const std::string& file, std::string* why);

}  // namespace epl::cuda_rig

// The PTX of `source`, or the test is skipped where NVRTC is not there.
#define EPL_COMPILE(ptx, source, file)                                        \
  std::string ptx##_why;                                                      \
  const std::string ptx = ::epl::cuda_rig::compile(source, file, &ptx##_why); \
  if (ptx.empty()) GTEST_SKIP() << ptx##_why
