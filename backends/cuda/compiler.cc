#include "backends/cuda/compiler.h"

#include <map>
#include <mutex>
#include <utility>

#include "backends/cuda/api/nvrtc.h"

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

  Result<std::string> ptx(int capability, const std::string& source) {
    EPL_TRY(check(nvrtc_.create(&program_, source.c_str(), "kernel.cu", 0, nullptr, nullptr)));
    const std::string target = cat("--gpu-architecture=compute_", capability);
    // The numbers are ours: nothing is contracted, flushed or approximated.
    const char* const options[] = {
        target.c_str(),    "--std=c++20", "--fmad=false",    "--device-as-default-execution-space",
        "--device-int128", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
    const NvrtcCode code = nvrtc_.compile(program_, static_cast<int>(std::size(options)), options);
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
Compiled& compiled() {
  static Compiled all;
  return all;
}

}  // namespace

Result<std::shared_ptr<const std::string>> compile(const std::string& libraries, int capability,
                                                   const std::string& source) {
  Compiled& known = compiled();
  const auto key = std::pair(capability, source);
  {
    const std::lock_guard lock(known.mutex);
    if (const auto it = known.texts.find(key); it != known.texts.end()) return it->second;
  }
  EPL_ASSIGN(const Nvrtc* nvrtc, open_nvrtc(libraries));
  EPL_ASSIGN(std::string text, Program(*nvrtc).ptx(capability, source));
  const std::lock_guard lock(known.mutex);
  return known.texts.emplace(key, std::make_shared<const std::string>(std::move(text))).first->second;
}

}  // namespace epl::cuda
