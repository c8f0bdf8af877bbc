// PTX that outlives the process: a folder with a file for each text that NVRTC has compiled. Processes share it without
// a lock. A file comes there by renaming, and is checked by a hash before it is used. A damaged one counts as missing,
// and is written anew.
//
// Nothing here fails a training: what cannot be read or written is compiled again, and `note` says so.
//
// Thread safety: all calls may run together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace epl::cuda {

class KernelCache {
 public:
  static constexpr uint64_t usual_bytes = 256 << 20;  // some thousand kernels

  // That of this folder, one for the process. Null for an empty name.
  static std::shared_ptr<KernelCache> of(const std::string& folder);

  // Makes the folder. Above `most_bytes` the files go that were used longest ago.
  explicit KernelCache(std::string folder, uint64_t most_bytes = usual_bytes);
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // What was kept under all of this key; none where there is none or it is damaged.
  std::optional<std::string> find(const std::string& key) const;
  void keep(const std::string& key, const std::string& text);

  // Where kernels are kept, or why new ones are not: a sentence.
  std::string note() const;
  // True for the first caller after something could not be written.
  bool is_news();

  const std::string folder;

 private:
  std::string path_of(const std::string& key) const;
  // What an errno says is remembered. Nothing is written from then on.
  void fail(int error_number);
  bool writes() const;
  // The folder as it is now, shrunk where it is too large.
  void measure();
  int write_file(const std::string& path, const std::string& bytes) const;

  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  uint64_t bytes_ = 0;  // of all files, as far as this process knows
  std::string failure_;
  bool said_ = false;
};

}  // namespace epl::cuda
