package campaign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/rules"
)

// Templates is what campaigns ask of the registry of templates.
type Templates interface {
	TemplateInfo(ctx context.Context, name string) (TemplateInfo, error)
}

// TemplateInfo is what a campaign must know of its template.
type TemplateInfo struct {
	Exists   bool // it is registered, with a body: names that other services own can't be sent
	Retired  bool
	Repeat   rules.Repeat
	Snapshot bson.Raw // the document as it is now
}

// ApplyOptions say how a directory of campaign files is applied.
type ApplyOptions struct {
	Now       time.Time
	Start     bool      // new scheduled campaigns begin active instead of paused
	Templates Templates // required
	// MisfireGrace is that of files that name none; 0: DefaultMisfireGrace.
	MisfireGrace time.Duration
	// Count counts the users a query finds, up to limit; an error means that MongoDB refuses the query. Nil: not looked at.
	Count func(ctx context.Context, query bson.D, limit int64) (int64, error)
}

// ApplyPlan is what applying a directory would do.
type ApplyPlan struct {
	Changes []Change `json:"changes"` // by name
	Gone    []string `json:"gone"`    // campaigns without a file any more; they are left alone
}

// Change is what applying does to one campaign.
type Change struct {
	File     string   `json:"file"`
	Name     string   `json:"name"`
	Action   string   `json:"action"` // ActionCreate, ActionUpdate or ActionKeep
	State    string   `json:"state"`  // of the campaign afterwards
	Firings  []Firing `json:"firings"`
	Warnings []string `json:"warnings"`
	Spec     Spec     `json:"spec"`

	next time.Time
	was  *Campaign
}

// Actions of a Change.
const (
	ActionCreate = "create"
	ActionUpdate = "update"
	ActionKeep   = "keep" // nothing to change
)

// Firing is a slot to come, in UTC and on the clocks of the campaign's zone.
type Firing struct {
	UTC   time.Time `json:"utc"`
	Local time.Time `json:"local"`
}

// PlanApply reads all campaign files (*.yaml, *.yml) of a directory and says what applying them would do. The error is
// FileErrors where files are wrong or name templates that can't be sent: then nothing may be applied.
func (s *Store) PlanApply(ctx context.Context, dir string, o ApplyOptions) (*ApplyPlan, error) {
	files, err := readFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if o.MisfireGrace > 0 && !f.graceGiven {
			f.spec.MisfireGrace = o.MisfireGrace
		}
	}
	if err := s.checkTogether(ctx, files, o); err != nil {
		return nil, err
	}
	there, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]*Campaign{}
	for i := range there {
		known[there[i].Name] = &there[i]
	}
	plan := &ApplyPlan{Changes: []Change{}, Gone: []string{}}
	for _, f := range files {
		c, err := f.change(known[f.spec.Name], o)
		if err != nil {
			return nil, err
		}
		if c.Warnings, err = f.warnings(ctx, o); err != nil {
			return nil, err
		}
		plan.Changes = append(plan.Changes, c)
		delete(known, f.spec.Name)
	}
	for name := range known {
		plan.Gone = append(plan.Gone, name)
	}
	slices.Sort(plan.Gone)
	slices.SortFunc(plan.Changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return plan, nil
}

// Apply carries out a plan, one campaign after the other. After an error the campaigns before it have been applied; the
// same directory can be applied again.
func (s *Store) Apply(ctx context.Context, plan *ApplyPlan) error {
	for i := range plan.Changes {
		if err := s.applyChange(ctx, &plan.Changes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) applyChange(ctx context.Context, c *Change) error {
	if c.Action == ActionKeep {
		return nil
	}
	update := bson.D{}
	set := append(bson.D{{Key: "spec", Value: c.Spec}}, scheduleFields(c.State, c.next)...)
	if c.next.IsZero() {
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "next_at", Value: ""}}})
	}
	update = append(update, bson.E{Key: "$set", Value: set})
	filter := bson.D{{Key: "_id", Value: c.Name}}
	if c.was != nil { // a pause that came after the plan must not be undone by it
		filter = append(filter, bson.E{Key: "state", Value: c.was.State})
	}
	res, err := s.campaigns.UpdateOne(ctx, filter, update, options.UpdateOne().SetUpsert(c.was == nil))
	if err != nil {
		return fmt.Errorf("campaign %s: apply: %w", c.Name, err)
	}
	if res.MatchedCount == 0 && res.UpsertedCount == 0 {
		return fmt.Errorf("campaign %s: apply: it was paused or resumed meanwhile; apply again", c.Name)
	}
	return nil
}

// readFiles reads all campaign files of a directory, or gives all that is wrong with all of them.
func readFiles(dir string) ([]*file, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return nil, FileErrors{{File: dir, Text: "that is a file; name its folder"}}
	case errors.Is(err, fs.ErrNotExist):
		return nil, FileErrors{{File: dir, Text: "no such folder"}}
	case err != nil:
		return nil, fmt.Errorf("campaign files: %w", err)
	}
	var files []*file
	var errs FileErrors
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("campaign files: %w", err)
		}
		f := parseFile(e.Name(), data)
		errs = append(errs, f.errs...)
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, FileErrors{{File: dir, Text: "there is no *.yaml there"}}
	}
	return files, errs.orNil()
}

// checkTogether finds what is wrong with files that are right by themselves.
func (s *Store) checkTogether(ctx context.Context, files []*file, o ApplyOptions) error {
	var errs FileErrors
	first := map[string]string{}
	for _, f := range files {
		f.errs = nil
		if other, twice := first[f.spec.Name]; twice {
			f.fail(f.lines["name"], "name", "%s is the campaign of %s already", f.spec.Name, other)
		} else {
			first[f.spec.Name] = f.file
		}
		t, err := o.Templates.TemplateInfo(ctx, f.spec.Template)
		switch {
		case err != nil:
			return fmt.Errorf("campaign %s: template %s: %w", f.spec.Name, f.spec.Template, err)
		case !t.Exists:
			f.fail(f.lines["template"], "template", "there is no template %q to be sent; push it first", clip(f.spec.Template))
		case t.Retired:
			f.fail(f.lines["template"], "template", "%s is retired", f.spec.Template)
		}
		errs = append(errs, f.errs...)
	}
	return errs.orNil()
}

// change works out what applying f does to the campaign that is there (nil: none).
func (f *file) change(was *Campaign, o ApplyOptions) (Change, error) {
	c := Change{File: f.file, Name: f.spec.Name, Spec: f.spec, Action: ActionCreate, State: StateActive, was: was, Firings: []Firing{}}
	slots, err := f.spec.Schedule.Slots()
	if err != nil {
		return c, fmt.Errorf("campaign %s: %w", f.spec.Name, err)
	}
	from := o.Now
	newSchedule := !f.spec.Schedule.ByHand()
	if was != nil {
		c.Action, c.State = ActionUpdate, was.State
		from = later(from, was.LastAt)
		newSchedule = newSchedule && was.Spec.Schedule.ByHand()
		if sameSpec(was.Spec, f.spec) {
			c.Action = ActionKeep
		}
	}
	if newSchedule && !o.Start {
		c.State = StatePaused
	}
	if c.State == StateActive {
		c.next = slots(from)
	}
	zone, err := f.spec.Schedule.Zone()
	if err != nil {
		return c, fmt.Errorf("campaign %s: %w", f.spec.Name, err)
	}
	for t := slots(from); !t.IsZero() && len(c.Firings) < 3; t = slots(t) {
		c.Firings = append(c.Firings, Firing{UTC: t, Local: t.In(zone)})
	}
	return c, nil
}

// sameSpec compares what is stored: lists that are empty and lists that are missing are the same there.
func sameSpec(a, b Spec) bool {
	x, errX := bson.Marshal(a)
	y, errY := bson.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
