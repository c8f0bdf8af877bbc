package epl

import (
	"unsafe"

	"epl.ai/go/internal/raw"
)

// FolderLock is a folder that has one owner.
type FolderLock struct{ child }

// LockFolder makes a folder this process's own until the lock is closed or the process ends, however it ends. A second
// owner, in this process or in another one, is refused with [Busy] and a message that names the first. It holds against
// those alone who lock the folder as well. [Unsupported]: the file system has no locks.
func (e *Engine) LockFolder(path string) (*FolderLock, error) {
	engine, done, err := e.use()
	if err != nil {
		return nil, err
	}
	defer done()
	made, failure := raw.FolderLockCreate(engine, path)
	if failure != nil {
		return nil, taken(failure)
	}
	l := &FolderLock{}
	l.adopt(e, unsafe.Pointer(made), func(p unsafe.Pointer) { raw.FolderLockDestroy((*raw.FolderLock)(p)) })
	return watch(l, &l.handle), nil
}
