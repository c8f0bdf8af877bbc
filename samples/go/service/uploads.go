package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Limits are what clients may have together. 0: no limit.
type Limits struct {
	Budget  int64 // bytes of memory of all sessions and predictors
	Quota   int64 // bytes of all uploads
	Largest int64 // bytes of one upload
}

// Uploads are the files that clients have brought.
type Uploads struct {
	folder string
	limits Limits

	lock sync.Mutex
	used int64 // bytes of all, those that are on their way among them
}

// Upload is one of them.
type Upload struct {
	ID    string   `json:"id"`
	Bytes int64    `json:"bytes"`
	Jobs  []string `json:"jobs"` // that use it
}

const endOfPart = ".part"

// What a client may name a file: it becomes part of a path.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$`)

// openUploads takes up a folder. What did not arrive in full is removed.
func openUploads(folder string, limits Limits) (*Uploads, error) {
	u := &Uploads{folder: folder, limits: limits}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, one := range entries {
		if strings.HasSuffix(one.Name(), endOfPart) {
			err = errors.Join(err, os.Remove(u.path(one.Name())))
		} else if info, failure := one.Info(); failure == nil {
			u.used += info.Size()
		}
	}
	return u, err
}

func (u *Uploads) path(id string) string { return filepath.Join(u.folder, id) }

// take makes room for bytes, or says that there is none; a negative number gives room back.
func (u *Uploads) take(bytes int64) error {
	u.lock.Lock()
	defer u.lock.Unlock()
	if u.limits.Quota > 0 && bytes > u.limits.Quota-u.used {
		return fmt.Errorf("%w: all uploads together may have %d bytes; delete some", errQuota, u.limits.Quota)
	}
	u.used += bytes
	return nil
}

// add keeps a file under an id, which ends in its name, so that a reader is found by the ending.
func (u *Uploads) add(name string, body io.Reader) (upload Upload, err error) {
	if !plainName.MatchString(name) || strings.HasSuffix(name, endOfPart) {
		return upload, fmt.Errorf("%q is no plain file name", name)
	}
	upload.ID, upload.Jobs = newID()+"-"+name, []string{}
	part := u.path(upload.ID) + endOfPart
	file, err := os.Create(part)
	if err != nil {
		return upload, err
	}
	defer func() {
		if err != nil {
			u.take(-upload.Bytes)
			err = errors.Join(err, os.Remove(part))
		}
	}()
	upload.Bytes, err = u.copy(file, body)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(part, u.path(upload.ID))
	}
	return upload, err
}

// copy writes what comes, as long as there is room for it.
func (u *Uploads) copy(file *os.File, body io.Reader) (bytes int64, err error) {
	piece := make([]byte, 256<<10)
	for {
		n, end := body.Read(piece)
		if u.limits.Largest > 0 && bytes+int64(n) > u.limits.Largest {
			return bytes, fmt.Errorf("%w: it may have %d bytes", errTooLarge, u.limits.Largest)
		}
		if err := u.take(int64(n)); err != nil {
			return bytes, err
		}
		bytes += int64(n)
		if _, err := file.Write(piece[:n]); err != nil {
			return bytes, err
		}
		if end != nil {
			if end == io.EOF {
				end = nil
			}
			return bytes, end
		}
	}
}

// find gives the path of an upload.
func (u *Uploads) find(id string) (string, error) {
	if plainName.MatchString(id) && !strings.HasSuffix(id, endOfPart) {
		if _, err := os.Stat(u.path(id)); err == nil {
			return u.path(id), nil
		}
	}
	return "", fmt.Errorf("%w: %s", errUnknown, excerpt(id))
}

// list has them in the order of their ids; `users` says which jobs use one.
func (u *Uploads) list(users func(string) []string) ([]Upload, error) {
	entries, err := os.ReadDir(u.folder)
	if err != nil {
		return nil, err
	}
	all := []Upload{}
	for _, one := range entries {
		info, err := one.Info()
		if err == nil && !strings.HasSuffix(one.Name(), endOfPart) {
			all = append(all, Upload{one.Name(), info.Size(), users(one.Name())})
		}
	}
	return all, nil
}

// remove gives back the room of an upload that no job uses.
func (u *Uploads) remove(id string, users func(string) []string) (Upload, error) {
	path, err := u.find(id)
	if err != nil {
		return Upload{}, err
	}
	jobs := users(id)
	if len(jobs) > 0 {
		return Upload{}, fmt.Errorf("%w: it belongs to job %s", errInUse, jobs[0])
	}
	info, err := os.Stat(path)
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) { // another client was first
		return Upload{}, errUnknown
	}
	if err != nil {
		return Upload{}, err
	}
	u.take(-info.Size())
	return Upload{id, info.Size(), jobs}, nil
}

// uses says whether a job needs an upload, as its model, as its data, or as a file that an option names, with a "./" before
// it for example.
func (s *Spec) uses(id string) bool {
	target, _ := s.Dataset["target"].(string)
	return slices.Contains([]string{s.Model, s.Data, path.Base(target)}, id)
}

// claim keeps the uploads of a job while it is made. What it gives ends that.
func (m *Manager) claim(id string, spec Spec) func() {
	m.making.Lock() // no upload is being deleted
	m.lock.Lock()
	m.coming[id] = spec
	m.lock.Unlock()
	m.making.Unlock()
	return func() {
		m.lock.Lock()
		delete(m.coming, id)
		m.lock.Unlock()
	}
}

func excerpt(text string) string {
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return text
}
