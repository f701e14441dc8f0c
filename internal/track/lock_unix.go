//go:build unix

package track

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock that ends with the process, however that ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrSpoolInUse
		}
		return nil, err
	}
	return f, nil
}
