//go:build !epl_flags

package raw

// The library is found by pkg-config. With the build tag epl_flags it is named by CGO_CFLAGS and CGO_LDFLAGS alone, for
// a library that is not installed.

// #cgo pkg-config: epl
import "C"
