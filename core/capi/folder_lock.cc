// Folders that one process has to itself.
#include "core/base/folder_lock.h"

#include "core/capi/handle.h"

struct epl_folder_lock : epl::capi::Handle<epl::capi::HandleType::folder_lock> {
  std::unique_ptr<epl::OwnedFolder> folder;
};

using namespace epl;
using namespace epl::capi;

epl_error* epl_folder_lock_create(const epl_engine* engine, const char* path, size_t path_length,
                                  epl_folder_lock** lock) {
  return giving(lock, "lock", [&]() -> Result<std::unique_ptr<epl_folder_lock>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    auto made = std::make_unique<epl_folder_lock>();
    EPL_ASSIGN(made->folder, OwnedFolder::take(std::string(path_text)));
    return made;
  });
}

void epl_folder_lock_destroy(epl_folder_lock* lock) { destroy(lock); }
