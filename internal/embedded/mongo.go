package embedded

import (
	"errors"
	"fmt"
	"os"

	"postbit/internal/minimongo"
)

// startMongo serves minimongo on a unix socket, which the permissions of the directory guard.
func (s *Stack) startMongo(dir, socket string, o Options) error {
	_ = os.Remove(socket) // of an owner that was killed; the lock is ours
	m, err := minimongo.Open(minimongo.Config{Dir: dir, NoSync: o.Throwaway, Now: o.Clock.Now, Logger: o.Log})
	if err != nil {
		return fmt.Errorf("embedded store: %w", err)
	}
	if _, err := m.Listen("unix", socket); err != nil {
		return errors.Join(fmt.Errorf("embedded store: %w", err), m.Close())
	}
	s.MongoURI = m.URI()
	s.close = append(s.close, m.Close)
	return nil
}
