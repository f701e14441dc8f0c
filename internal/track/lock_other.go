//go:build !unix

package track

import "os"

// lockFile can't keep another process out here: an open file can't be deleted on Windows, but there is no lock.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
