// Package logtest keeps what parts of the program print while they run, for a test that looks at it meanwhile.
package logtest

import (
	"bytes"
	"sync"
)

// Buffer takes what any number of goroutines write. The zero value is empty; it must not be copied.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
