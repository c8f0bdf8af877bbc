package epl

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime/cgo"

	"epl.ai/go/internal/raw"
)

// byteSource is what lies behind the userdata of a source: it fills target with the bytes from offset on.
type byteSource interface {
	read(target []byte, offset int64) error
}

// readAll reads all of target, or says why not.
func readAll(from io.ReaderAt, target []byte, offset int64) error {
	n, err := from.ReadAt(target, offset)
	if n == len(target) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fileOfFS is a file of a file system that the library keeps. Any threads may read it at once.
type fileOfFS struct {
	system fs.FS
	name   string
	file   fs.File
	at     io.ReaderAt
}

// openInFS opens a file and fills in the source of it, which is the library's if the call that takes it succeeds.
func openInFS(system fs.FS, name string, source *raw.Source) (cgo.Handle, error) {
	file, err := system.Open(name)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	at, readable := file.(io.ReaderAt)
	if err == nil && !readable {
		err = fmt.Errorf("%s: a file of %T cannot be read at any position (io.ReaderAt)", name, system)
	}
	if err != nil {
		file.Close()
		return 0, err
	}
	handle := cgo.NewHandle(&fileOfFS{system, name, file, at})
	source.Bytes, source.Read, source.Open = uint64(info.Size()), readFunction(), openFunction()
	source.Userdata, source.Destroy = uintptr(handle), dropFunction()
	return handle, nil
}

func (f *fileOfFS) read(target []byte, offset int64) error {
	if err := readAll(f.at, target, offset); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

func (f *fileOfFS) open(location string, source *raw.Source) error {
	_, err := openInFS(f.system, path.Join(path.Dir(f.name), location), source)
	return err
}

func (f *fileOfFS) drop() { f.file.Close() }

// LoadModelFS reads a model from a file system: one that is embedded into the program, an archive, an object store. Its
// files must be an io.ReaderAt, and must not change. Large weights stay there until a session or an export needs them,
// and what the model names beside it is opened beside it.
func (e *Engine) LoadModelFS(ctx context.Context, system fs.FS, name string, options ModelOptions) (*Model, error) {
	o := options.raw()
	source := raw.NewSource()
	handle, err := openInFS(system, name, &source)
	if err != nil {
		return nil, err
	}
	source.Name, source.NameLength = raw.AllocText(name)
	defer raw.FreeText(source.Name)
	m, err := e.loadModel(ctx, func(engine *raw.Engine, call *raw.CallOptions) (*raw.Model, *raw.Error) {
		return raw.ModelLoadFrom(engine, &source, &o, call)
	})
	if err != nil {
		handle.Value().(*fileOfFS).drop() // where it fails it is still ours
		handle.Delete()
	}
	return m, err
}
