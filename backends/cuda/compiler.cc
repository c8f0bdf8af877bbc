#include "backends/cuda/compiler.h"

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/api/nvrtc.h"
#include "backends/cuda/kernel_cache.h"

namespace epl::cuda {
namespace {

// A program of NVRTC, destroyed with the object.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  ~Program() {
    if (program_ != nullptr) nvrtc_.destroy(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Result<std::string> ptx(const std::vector<std::string>& options, const std::string& source) {
    EPL_TRY(check(nvrtc_.create(&program_, source.c_str(), "kernel.cu", 0, nullptr, nullptr)));
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    const NvrtcCode code = nvrtc_.compile(program_, static_cast<int>(given.size()), given.data());
    if (code != 0) return error(Code::internal, "NVRTC: ", nvrtc_.error_text(code), ": ", log());
    size_t bytes = 0;
    EPL_TRY(check(nvrtc_.ptx_size(program_, &bytes)));
    std::string text(bytes, '\0');
    EPL_TRY(check(nvrtc_.ptx(program_, text.data())));
    return text;
  }

 private:
  Status check(NvrtcCode code) const {
    return code == 0 ? Status() : error(Code::exhausted, "NVRTC: ", nvrtc_.error_text(code));
  }
  std::string log() const {
    size_t bytes = 0;
    if (nvrtc_.log_size(program_, &bytes) != 0 || bytes == 0) return "no log";
    std::string text(bytes, '\0');
    if (nvrtc_.log(program_, text.data()) != 0) return "no log";
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return excerpt(text, 700);
  }

  const Nvrtc& nvrtc_;
  NvrtcProgram program_ = nullptr;
};

struct Compiled {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, std::shared_ptr<const std::string>> texts;
};
// Never taken down: threads that compile ahead end later than what they were the first to use.
Compiled& compiled() {
  static Compiled& all = *new Compiled;
  return all;
}

// All that the PTX follows from. Builds of one version of NVRTC differ in size.
std::string key_of(const Nvrtc& nvrtc, const std::vector<std::string>& options, const std::string& source) {
  int major = 0, minor = 0;
  struct stat info{};
  nvrtc.version(&major, &minor);
  ::stat(nvrtc.path.c_str(), &info);
  std::string key = cat("NVRTC ", major, ".", minor, " of ", int64_t{info.st_size}, " bytes\n");
  for (const std::string& option : options) key += option + '\n';
  return key + '\n' + source;
}

}  // namespace

// The numbers are ours: nothing is contracted, flushed or approximated.
std::vector<std::string> options_for(int capability) {
  return {cat("--gpu-architecture=compute_", capability),
          "--std=c++20",
          "--fmad=false",
          "--device-as-default-execution-space",
          "--device-int128",
          "--ftz=false",
          "--prec-div=true",
          "--prec-sqrt=true"};
}

Result<std::shared_ptr<const std::string>> compile(const std::string& libraries, KernelCache* cache, int capability,
                                                   const std::string& source) {
  Compiled& known = compiled();
  const auto name = std::pair(capability, source);
  {
    const std::lock_guard lock(known.mutex);
    if (const auto it = known.texts.find(name); it != known.texts.end()) return it->second;
  }
  EPL_ASSIGN(const Nvrtc* nvrtc, open_nvrtc(libraries));
  const std::vector<std::string> options = options_for(capability);
  const std::string key = cache == nullptr ? std::string() : key_of(*nvrtc, options, source);
  std::optional<std::string> text = cache == nullptr ? std::nullopt : cache->find(key);
  if (!text) {
    EPL_ASSIGN(text, Program(*nvrtc).ptx(options, source));
    if (cache != nullptr) cache->keep(key, *text);
  }
  const std::lock_guard lock(known.mutex);
  return known.texts.emplace(name, std::make_shared<const std::string>(*std::move(text))).first->second;
}

}  // namespace epl::cuda
