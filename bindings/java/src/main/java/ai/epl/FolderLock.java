package ai.epl;

import ai.epl.raw.Raw;

/** A folder that has one owner, until this is closed or the process ends, however it ends. */
public final class FolderLock extends Handle {
  FolderLock(Engine engine, long address) {
    super(engine, address);
  }

  @Override
  void destroy() {
    Raw.epl_folder_lock_destroy(address);
  }
}
