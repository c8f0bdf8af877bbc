#include "core/base/pack.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstddef>

#include "core/base/pack_abi.h"
#include "core/base/shown.h"

namespace epl {

std::string pack_path(std::string_view folder, std::string_view name) { return cat(folder, "/libepl_", name, ".so"); }

Result<const epl_pack*> open_pack(std::string_view folder, std::string_view name) {
  if (folder.empty()) return error(Code::not_found, "the host names no folder where packs could be");
  const std::string path = pack_path(folder, name);
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return error(Code::not_found, "there is no ", shown_path(path));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return invalid(shown_path(path), " cannot be loaded: ", why ? why : "no reason was given");
  }
  const auto entry = reinterpret_cast<epl_pack_entry_fn>(::dlsym(library, EPL_PACK_ENTRY));
  const epl_pack* pack = entry ? entry() : nullptr;
  if (pack == nullptr)
    return invalid(shown_path(path), " is not a pack: it has no ", EPL_PACK_ENTRY, ", or that gives nothing");
  if (pack->abi != EPL_PACK_ABI) {
    return unsupported(shown_path(path), " speaks version ", pack->abi,
                       " of the packs' interface, this library version ", EPL_PACK_ABI, "; take both from one build");
  }
  if (pack->struct_size < sizeof(epl_pack)) {
    return unsupported(shown_path(path), " has a table of ", pack->struct_size, " bytes, this library reads ",
                       sizeof(epl_pack), "; take both from one build");
  }
  if (name != pack->name) return invalid(shown_path(path), " is pack ", pack->name);
  for (uint64_t i = 0; i < pack->kernel_count; ++i) {
    if (pack->kernels[i]->struct_size < sizeof(epl_pack_kernel)) {
      return unsupported(shown_path(path), " has rows of ", pack->kernels[i]->struct_size,
                         " bytes, this library reads ", sizeof(epl_pack_kernel), "; take both from one build");
    }
  }
  for (uint64_t i = 0; i < pack->codec_count; ++i) {
    if (pack->codecs[i]->struct_size < sizeof(epl_pack_codec)) {
      return unsupported(shown_path(path), " has codecs of ", pack->codecs[i]->struct_size,
                         " bytes, this library reads ", sizeof(epl_pack_codec), "; take both from one build");
    }
  }
  if (pack->carrier != nullptr && pack->carrier->struct_size < sizeof(epl_pack_carrier)) {
    return unsupported(shown_path(path), " has a carrier of ", pack->carrier->struct_size,
                       " bytes, this library reads ", sizeof(epl_pack_carrier), "; take both from one build");
  }
  // What comes from `meets` on may be missing.
  constexpr size_t device_bytes = offsetof(epl_pack_device, meets);
  if (pack->verbs != nullptr && pack->verbs->struct_size < device_bytes) {
    return unsupported(shown_path(path), " has a device of ", pack->verbs->struct_size, " bytes, this library reads ",
                       device_bytes, "; take both from one build");
  }
  return pack;
}

std::string pack_version(const epl_pack& pack) { return pack.version; }

}  // namespace epl
