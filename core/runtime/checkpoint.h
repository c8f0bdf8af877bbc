// What decides how training goes on, on disk: a folder with a manifest and a safetensors file of each process that
// writes. Or as one stream of bytes: a zip archive of the same files, stored as they are.
//
// A save writes a new tensors file, then renames a new manifest over the old: the manifest is the only thing that says
// which tensors count, so a kill at any moment leaves the old checkpoint or the new one, complete. A save first writes
// the name of its tensors file into a note; what a killed save left behind is known by that note and removed by the
// next. Nothing else in the folder is touched, and a folder that holds other things and no checkpoint is refused.
// Thread safety: saves to one folder, from any thread or process, take turns where the file system has locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/numerics.h"
#include "core/base/stop.h"
#include "core/base/tensor_box.h"
#include "core/runtime/facts.h"

namespace epl {

enum class StateKind : uint8_t { parameter = 0, frozen = 1, buffer = 2, optimizer = 3, gradient = 4 };
// What is done with values of a kind.
struct StateKindRow {
  enum class Refused : uint8_t { nothing, no_number, not_finite };
  std::string_view name;
  bool saved = true;                   // in checkpoints
  Refused refused = Refused::nothing;  // elements with which a state is not saved
};
const StateKindRow& state_kind_row(StateKind kind);
// In the order in which checkpoints have them.
inline constexpr StateKind state_kinds[] = {StateKind::parameter, StateKind::frozen, StateKind::buffer,
                                            StateKind::optimizer, StateKind::gradient};

struct CheckpointItem {
  std::string name;
  StateKind kind = StateKind::parameter;
  Tensor value;
  std::vector<PositionedBox> shards = {};  // of one that was loaded: where `value` is read from
};

struct Checkpoint {
  int64_t step = 0;  // steps done
  uint64_t seed = 0;
  int64_t units = 0;
  uint32_t numerics = numerics_version;
  int64_t data_position = -1;  // -1: no dataset
  std::vector<CheckpointItem> items;
  Facts facts;           // what the run was; empty in checkpoints of older versions
  uint64_t content = 0;  // of one that was loaded: a hash of its manifest, which holds those of its files
};

Status save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const FileHook& hook = nullptr);

// A shard of a tensor of the state, as some rank has it: the part of the tensor of shape `full` that begins at `offset`
// in each dimension. All shards of a name cover it once.
struct CheckpointShard {
  std::string name;
  StateKind kind = StateKind::parameter;
  Shape full, offset;
  int rank = 0;
  Tensor value;
};
// A save by several processes. One of them begins it, each writes its shard file, and the one that began it finishes it
// with what the writers of the shard files have reported. The manifest names all files, so that they count together or
// not at all.
class CheckpointSave {
 public:
  // Holds the folder against other saves. `files`: how many shard files there may be.
  static Result<std::unique_ptr<CheckpointSave>> begin(const std::string& folder, int files,
                                                       const FileHook& hook = nullptr);
  uint64_t generation() const { return generation_; }
  // `checkpoint` without its items.
  Status finish(const Checkpoint& checkpoint, std::span<const std::string> reports);
  // Removes what is not finished, and the folder where this save has made it. `all_written`: nobody writes a shard file
  // any more. Else one may still be on its way, by a process that has not noticed yet; then a note of their names
  // stays, by which the next save or `remove_checkpoint` removes it.
  void give_up(bool all_written);

 private:
  CheckpointSave(const std::string& folder, int files, const FileHook& hook)
      : folder_(folder), files_(files), hook_(hook), lock_(folder) {}
  const std::string folder_;
  const int files_;
  const FileHook hook_;
  const FolderLock lock_;
  uint64_t generation_ = 1;
  bool made_folder_ = false;
};
// A process that gives up its shard file takes it away again.
void remove_shard_file(const std::string& folder, uint64_t generation, int file);
// Returns what `finish` needs of it.
Result<std::string> write_shard_file(const std::string& folder, uint64_t generation, int file,
                                     std::span<const CheckpointShard> shards, const FileHook& hook = nullptr);

// The same as one stream, from its first byte to its last: the tensors, then the manifest that holds their hash.
// Unpacked into a folder it is that form. Items are asked for in their order, and those that are not in memory are read
// as they are written.
Status write_checkpoint(ByteWriter& out, const Checkpoint& checkpoint);

// The files of a checkpoint, wherever they are.
struct CheckpointFiles {
  std::string name;  // for messages
  std::function<Result<std::shared_ptr<const FileReader>>(const std::string& file)> open;
  // Names are followed anew each time: a save may put other files in their place.
  bool in_use = false;
  static CheckpointFiles in_folder(const std::string& folder);
  static Result<CheckpointFiles> in_archive(std::shared_ptr<const FileReader> archive);
  // A folder, or the file of an archive.
  static Result<CheckpointFiles> at(const std::string& path);
};

// Everything is checked before anything is returned: the manifest's hash and structure, the tensors' size and hash, and
// that both speak of the same names. Tensors are left in their file, which stays open, until they are loaded or read.
// A checkpoint that a save replaces meanwhile, in its folder or behind a link, is read as it is then.
Result<Checkpoint> load_checkpoint(const CheckpointFiles& files, const Stop& stop = {});
Result<Checkpoint> load_checkpoint(const std::string& path, const Stop& stop = {});
// Removes the files that the manifest names, the manifest first, or what a killed save has left, and the folder if
// nothing else lies in it.
Status remove_checkpoint(const std::string& folder, const FileHook& hook = nullptr);

}  // namespace epl
