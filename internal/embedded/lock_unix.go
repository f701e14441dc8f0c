//go:build unix

package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// takeLock holds name until the file is closed, or the process ends in whatever way. The file says who holds it.
func takeLock(name string, h holder) (_ *os.File, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w%s", ErrInUse, heldBy(name))
		}
		return nil, err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(append(text, '\n'), 0); err != nil {
		return nil, err
	}
	return f, nil
}
