//go:build !unix

package embedded

import (
	"errors"
	"os"
)

// takeLock has no counterpart of flock(2) here.
func takeLock(string, holder) (*os.File, error) {
	return nil, errors.New("the embedded parts need a Unix; set POSTBIT_MONGO_URI, POSTBIT_REDIS_URI and POSTBIT_SMTP_URL")
}
