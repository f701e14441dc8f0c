package scheduler

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	"postbit/internal/campaign"
	"postbit/internal/queue"
)

// ErrTemplate is returned for a campaign whose template can't be sent.
var ErrTemplate = errors.New("the template can't be sent")

// ErrKey is returned for a key that StartManual does not take.
var ErrKey = errors.New("a key is 1 to 64 of the characters A-Z a-z 0-9 . _ -")

var keyFormat = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// StartManual makes a run of a campaign now, whatever its schedule says and also while that is paused. With a key, only the
// first call makes a run; later ones return it as it stands. An unfinished run of the campaign is superseded, as by its schedule.
func (s *Scheduler) StartManual(ctx context.Context, name, key string) (*campaign.Run, error) {
	if key != "" && !keyFormat.MatchString(key) {
		return nil, fmt.Errorf("key %.80q: %w", key, ErrKey)
	}
	c, err := s.Runs.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if key != "" {
		if r, err := s.Runs.RunByKey(ctx, name, key); !errors.Is(err, campaign.ErrNotFound) {
			return r, err
		}
	}
	t, err := s.Templates.TemplateInfo(ctx, c.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", c.Spec.Template, err)
	}
	if why := cannotSend(c.Spec.Template, t); why != "" {
		return nil, fmt.Errorf("campaign %s: %s: %w", name, why, ErrTemplate)
	}
	now := s.Clock.Now()
	for {
		var suffix [4]byte
		rand.Read(suffix[:])
		r := &campaign.Run{ID: campaign.RunID(name, now) + "+manual-" + hex.EncodeToString(suffix[:]), Slot: now}
		if key != "" {
			r.Key = campaign.RunKey(name, key)
		}
		started, err := s.start(ctx, r, c, now)
		switch {
		case errors.Is(err, campaign.ErrRunExists):
			continue // that suffix is taken
		case errors.Is(err, campaign.ErrKeyInUse): // somebody else was faster
			return s.Runs.RunByKey(ctx, name, key)
		case err != nil:
			return nil, err
		}
		if s.Queue != nil { // the feeder would do so a moment later, and does where this fails
			if err := s.Queue.EnqueuePlan(ctx, queue.PlanTask{Run: started.ID}); err != nil {
				s.Log.Warn("the plan of a run waits for the feeder", "run", started.ID, "err", err)
			}
		}
		return started, nil
	}
}
