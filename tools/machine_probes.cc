// Probes run one after another and share the seconds that there are.
#include "tools/machine_probes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "tools/clock.h"
#include "tools/scratch_folder.h"
#include "tools/zero_job.h"

namespace epl::tools {
namespace {

struct MachineProbe {
  const char* what;
  const char* options;  // of the family mlp
  int64_t batch, ranks;
};
// Products by class of shape, elementwise work in and out of caches, and sums of gradients of many sizes.
constexpr MachineProbe probes[] = {
    {"small kernels", R"({"sizes":[4,4,4]})", 4, 1},
    {"square products", R"({"sizes":[256,256,256]})", 256, 1},
    {"large products", R"({"sizes":[768,768,256]})", 512, 1},
    {"products of few rows", R"({"sizes":[1024,1024,64]})", 8, 1},
    {"products of long sums", R"({"sizes":[8192,64,64]})", 256, 1},
    {"elementwise in caches", R"({"sizes":[8,1024,8]})", 64, 1},
    {"elementwise in memory", R"({"sizes":[8,32768,8]})", 128, 1},
    {"small messages", R"({"sizes":[4,4,4]})", 4, 2},
    {"messages", R"({"sizes":[128,128,128]})", 16, 2},
    {"large messages", R"({"sizes":[1024,1024,64]})", 16, 2},
};
constexpr double most_recorded = 40;  // steps of a probe
constexpr size_t file_bytes = size_t{32} << 20, part_bytes = size_t{1} << 20;

// Bytes that one rank of two contributes; 0: of no use here.
double contributed(const Json& args) {
  if (!args.contains("ranks") || args.at("ranks").size() != 2) return 0;
  const std::string what = args.at("what").get<std::string>();
  const double bytes = args.at("bytes").get<double>();
  if (what == "all_reduce") return bytes;
  return what == "all_gather" || what == "reduce_scatter" ? bytes / 2 : 0;
}

double seconds_of_uploads(const Json& trace) {
  double seconds = 0;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "upload") seconds += event.at("dur").get<double>() * 1e-6;
  }
  return seconds;
}

void probe(const MachineProbe& one, const JobOptions& common, const std::string& scratch, double seconds,
           Probed& found) {
  ZeroTraining training({.family = "mlp", .options = one.options, .batch = one.batch, .ranks = one.ranks}, common,
                        scratch);
  training.begin();
  training.step();  // touches the memory
  const double step = std::max(training.step(), 1e-6);
  const auto steps = static_cast<int64_t>(std::clamp(seconds / step, 1.0, most_recorded));
  const Json trace = training.record(steps);
  add_measures(trace, one.what, found.measures);
  if (found.device.empty()) found.device = training.overview().at("device").get<std::string>();
  const double uploading = seconds_of_uploads(trace);
  if (uploading > 0) {
    const double bytes = static_cast<double>(training.input_bytes() * steps);
    found.host_bandwidth = std::max(found.host_bandwidth, bytes / uploading);
  }
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& folder) : folder_(folder) {
    std::string path = folder + "/epl-calibrate-" + std::string(6, 'X');
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("make a file");
    ::unlink(path.c_str());
  }
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void write_all(const std::vector<char>& part) {
    for (size_t at = 0; at < file_bytes; at += part.size()) {
      if (::pwrite(descriptor_, part.data(), part.size(), static_cast<off_t>(at)) != std::ssize(part)) fail("write");
    }
    if (::fdatasync(descriptor_) != 0) fail("write");
  }
  void read_all(std::vector<char>& part) {
    for (size_t at = 0; at < file_bytes; at += part.size()) {
      if (::pread(descriptor_, part.data(), part.size(), static_cast<off_t>(at)) != std::ssize(part)) fail("read");
    }
  }
  // What lies in memory is given up, so that reading is from the disk.
  void forget() { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

 private:
  [[noreturn]] void fail(const std::string& what) {
    const int reason = errno;
    throw ApiError(EPL_ERROR_IO, "cannot " + what + " in " + folder_ + ": " + std::strerror(reason), folder_);
  }

  const std::string folder_;
  int descriptor_ = -1;
};

}  // namespace

void add_measures(const Json& trace, const std::string& probe, Measures& measures) {
  // A node runs many times: its median counts once, so that no node outweighs the others.
  std::map<std::pair<int64_t, std::string>, std::pair<KernelMeasure, std::vector<double>>> kernels;
  std::map<std::pair<int64_t, std::string>, std::pair<double, std::vector<double>>> messages;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "X") continue;
    const std::string category = event.value("cat", "");
    const double seconds = event.at("dur").get<double>() * 1e-6;
    const Json& args = event.at("args");
    const std::pair key(event.at("pid").get<int64_t>(), event.at("name").get<std::string>());
    if (seconds <= 0) continue;
    if (category == "compute" && args.contains("rate")) {
      auto& [kernel, all] = kernels[key];
      kernel = {.probe = probe,
                .product = args.at("rate") == "products",
                .flops = args.at("flops").get<double>(),
                .bytes = args.at("bytes").get<double>()};
      all.push_back(seconds);
    } else if (category == "moving" && contributed(args) > 0) {
      auto& [bytes, all] = messages[key];
      bytes = contributed(args);
      all.push_back(seconds);
    }
  }
  for (auto& [key, one] : kernels) {
    one.first.seconds = middle_of(one.second);
    if (one.first.bytes > 0) measures.kernels.push_back(one.first);
  }
  for (const auto& [key, one] : messages) measures.messages.push_back({one.first, middle_of(one.second)});
}

double measure_file(const std::string& folder) {
  OpenFile file(folder);
  std::vector<char> part(part_bytes, 'e');
  const double begin = steady_seconds();
  file.write_all(part);
  const double written = steady_seconds();
  file.forget();
  const double reads = steady_seconds();
  file.read_all(part);
  return static_cast<double>(file_bytes) / std::max({written - begin, steady_seconds() - reads, 1e-9});
}

Probed probe_machine(const JobOptions& common, double seconds, const std::string& folder) {
  Probed found;
  const ScratchFolder scratch;
  const double begin = steady_seconds();
  // Opening a model and planning take time too, so that records get a part of what is left.
  double left = static_cast<double>(std::size(probes));
  for (const MachineProbe& one : probes) {
    const double share = std::max(seconds - (steady_seconds() - begin), 0.0) / left--;
    try {
      probe(one, common, scratch.path(), share / 2, found);
    } catch (const ApiError& e) {
      if (one.ranks == 1) throw;
      found.unmeasured.push_back(std::string(one.what) + ": " + e.what());
    }
  }
  if (!folder.empty()) found.file_bandwidth = measure_file(folder);
  return found;
}

}  // namespace epl::tools
