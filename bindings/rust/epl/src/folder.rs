use crate::engine::Engine;
use crate::error::Result;
use crate::handle::{given, handle, path_text, raw};
use epl_sys as sys;
use std::path::Path;

handle!(
    /// A folder that has one owner, until this is dropped or the process ends, however it ends.
    FolderLock, epl_folder_lock, epl_folder_lock_destroy
);
// The header: locks are for any threads.
unsafe impl Send for FolderLock {}
unsafe impl Sync for FolderLock {}

impl FolderLock {
    /// A second owner, in this process or in another one, is refused with [`Code::BUSY`](crate::Code::BUSY) and a message
    /// that names the first. It holds against those alone who lock the folder as well. `Code::UNSUPPORTED`: the file
    /// system has no locks.
    pub fn new(engine: &Engine, path: impl AsRef<Path>) -> Result<FolderLock> {
        let (path, length) = raw(path_text(path.as_ref())?);
        given(|place| unsafe { sys::epl_folder_lock_create(engine.0.as_ptr(), path, length, place) }).map(FolderLock)
    }
}
