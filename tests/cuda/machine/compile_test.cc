// NVRTC for the tests beside, and that what it makes is what the machine reads.
#include <map>

#include "tests/cuda/machine/rig.h"

namespace epl::cuda_rig {
namespace {

struct Nvrtc {
  void* library = nullptr;
  std::string why;
  template <class... Arguments> int call(const char* name, Arguments... arguments) {
    return reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name))(arguments...);
  }
};

Nvrtc& nvrtc() {
  static Nvrtc opened = [] {
    const std::string folder = EPL_NVRTC_FOLDER;
    Nvrtc made;
    // Its second library is looked for by name alone, so it must be there already.
    ::dlopen((folder + "/libnvrtc-builtins.so.13.0").c_str(), RTLD_NOW | RTLD_GLOBAL);
    made.library = ::dlopen((folder + "/libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (made.library == nullptr) made.why = "NVRTC is not there (scripts/nvrtc.sh fetches it): " + folder;
    return made;
  }();
  return opened;
}

}  // namespace

std::string compile(const std::string& source, const std::string& file, std::string* why) {
  Nvrtc& compiler = nvrtc();
  *why = compiler.why;
  if (compiler.library == nullptr) return "";
  static std::map<std::string, std::string> known;
  if (const auto found = known.find(file + source); found != known.end()) return found->second;
  void* program = nullptr;
  compiler.call("nvrtcCreateProgram", &program, source.c_str(), file.c_str(), 0, static_cast<const char**>(nullptr),
                static_cast<const char**>(nullptr));
  const char* options[] = {"--gpu-architecture=compute_90", "--fmad=false", "-lineinfo", "--std=c++17"};
  const int code = compiler.call("nvrtcCompileProgram", program, 4, static_cast<const char**>(options));
  size_t bytes = 0;
  if (code != 0) {
    compiler.call("nvrtcGetProgramLogSize", program, &bytes);
    std::string log(bytes, '\0');
    compiler.call("nvrtcGetProgramLog", program, log.data());
    throw std::runtime_error(log);
  }
  compiler.call("nvrtcGetPTXSize", program, &bytes);
  std::string text(bytes, '\0');
  compiler.call("nvrtcGetPTX", program, text.data());
  compiler.call("nvrtcDestroyProgram", &program);
  return known[file + source] = text;
}

namespace {

TEST(MachineCompile, AKernelRuns) {
  EPL_COMPILE(ptx, R"(extern "C" __global__ void twice(const float* a, float* b, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i] * 2;
  })",
              "twice.cu");
  Rig rig;
  void* twice = rig.function(ptx, "twice");
  std::vector<float> a(1000);
  for (size_t k = 0; k < a.size(); ++k) a[k] = 0.1f * static_cast<float>(k);
  const Address from = rig.upload(a), to = rig.allocate(4000);
  rig.want(rig.launch(twice, {.grid = 8, .block = 128}, from, to, 1000ll));
  const std::vector<float> b = rig.download<float>(to, 1000);
  for (size_t k = 0; k < a.size(); ++k) EXPECT_EQ(b[k], a[k] * 2);
  EXPECT_EQ(rig.findings(), "");
  EXPECT_GT(rig.count("instructions"), 1000u);
}

// The text that the compiler makes says where a fault is.
TEST(MachineCompile, AFaultNamesItsLine) {
  EPL_COMPILE(ptx, "extern \"C\" __global__ void past(float* a) {\n  int i = threadIdx.x;\n  a[i + 1] = 3;\n}\n",
              "past.cu");
  Rig rig;
  const Address memory = rig.allocate(128);
  rig.want(rig.launch(rig.function(ptx, "past"), {}, memory));
  EXPECT_EQ(rig.synchronize(), 700);
  EXPECT_NE(rig.findings().find("past.cu:3"), std::string::npos) << rig.findings();
  EXPECT_NE(rig.findings().find("thread (31,0,0)"), std::string::npos) << rig.findings();
  EXPECT_NE(rig.findings().find("0 bytes behind the end of one of 128"), std::string::npos) << rig.findings();
}

}  // namespace
}  // namespace epl::cuda_rig
