package templates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"postbit/internal/faults"
	"postbit/internal/quantity"
)

// Action is what a plan does with one template.
type Action string

const (
	Create    Action = "create"
	Update    Action = "update" // a new revision
	Unchanged Action = "unchanged"
	Import    Action = "import"
	Retire    Action = "retire"
)

// Change is one line of a plan.
type Change struct {
	Name     string `json:"name"`
	Action   Action `json:"action"`
	BitIndex int    `json:"bitIndex"`
	Revision int    `json:"revision"`
	Assigned bool   `json:"assigned,omitempty"` // the index was picked by --assign and goes into the file
	Adopted  int64  `json:"adopted,omitempty"`  // so many users have the bit already

	old, new *Template
}

// String is the change as a plan shows it.
func (c Change) String() string {
	s := fmt.Sprintf("%-9s %s: bit %d", c.Action, c.Name, c.BitIndex)
	if c.Revision > 0 && c.Action != Retire {
		s += fmt.Sprintf(", revision %d", c.Revision)
	}
	if c.Assigned {
		s += ", index assigned"
	}
	if c.Adopted > 0 {
		s += fmt.Sprintf(", adopted from %s", quantity.Of(c.Adopted, "user"))
	}
	return s
}

// Plan is what Apply will do, all of it or nothing.
type Plan struct {
	Changes []Change

	files []mailFile // those that get their index written into them
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool {
	return len(p.files) == 0 && !slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action != Unchanged })
}

// Refusal lists all that stands against a plan. Nothing has been changed.
type Refusal struct{ Reasons []string }

func (e *Refusal) Error() string { return faults.Text(e.Reasons) }

func (e *Refusal) add(format string, args ...any) {
	e.Reasons = append(e.Reasons, fmt.Sprintf(format, args...))
}

// PushOptions are the flags of templates push.
type PushOptions struct {
	Assign    bool // give files without bitIndex the lowest one that is free
	Adopt     bool // take over bits that users have and no template owns
	BitsInUse BitsInUse
}

// begin is an empty plan over what is registered.
func (r *Registry) begin(ctx context.Context) (*push, error) {
	if err := r.Repair(ctx); err != nil {
		return nil, err
	}
	registered, err := r.all(ctx)
	if err != nil {
		return nil, err
	}
	p := &push{registered: registered, owners: map[int]*Template{}, plan: &Plan{}}
	for _, t := range registered {
		p.owners[t.BitIndex] = t
	}
	return p, nil
}

// PlanPush compares the templates of a folder with the registry. What stands against it is a *Refusal that names all of it.
func (r *Registry) PlanPush(ctx context.Context, dir string, o PushOptions) (*Plan, error) {
	mails, err := readDir(dir)
	if err != nil {
		return nil, refusal(err)
	}
	p, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range mails {
		p.add(m, o.Assign)
	}
	if len(p.refusal.Reasons) == 0 {
		err = p.checkBits(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range p.plan.files {
		if m.template.BitIndex == noIndex {
			continue // refused already
		}
		if _, err := withIndex(m.raw, m.template.BitIndex); err != nil {
			p.refusal.add("%s: %s", m.template.Name, err)
		}
	}
	if len(p.refusal.Reasons) > 0 {
		return nil, &p.refusal
	}
	return p.plan, nil
}

func refusal(err error) error {
	return &Refusal{Reasons: strings.Split(err.Error(), "\n")}
}

// push is a plan in the making.
type push struct {
	registered map[string]*Template
	owners     map[int]*Template // by bit index: registered, or in this push
	plan       *Plan
	refusal    Refusal
	fresh      []int // places in plan.Changes with a new, given index
	unassigned []int // and of those without one
}

func (p *push) add(m mailFile, assign bool) {
	t := m.template
	old := p.registered[t.Name]
	c := Change{Name: t.Name, Action: Create, BitIndex: t.BitIndex, Revision: 1, old: old, new: t}
	missing := t.BitIndex == noIndex
	switch {
	case old != nil && old.Retired():
		p.refusal.add("%s: retired; its index is never given out again, give the mail a new name", t.Name)
		return
	case missing && !assign && old != nil:
		p.refusal.add("%s: bitIndex is missing; it is %d, write it into the file or push with --assign", t.Name, old.BitIndex)
		return
	case missing && !assign:
		p.refusal.add("%s: bitIndex is missing; pick one that is free, or push with --assign", t.Name)
		return
	case !missing && old != nil && old.BitIndex != t.BitIndex:
		p.refusal.add("%s: bitIndex %d was %d; an index is forever", t.Name, t.BitIndex, old.BitIndex)
		return
	}
	if missing {
		p.plan.files = append(p.plan.files, m)
		c.Assigned = true
		if old != nil {
			t.BitIndex, c.BitIndex = old.BitIndex, old.BitIndex
		}
	}
	if old != nil {
		c.Revision = old.Revision + 1
		c.Action = Update
		if t.sameAs(old) {
			c.Action, c.Revision = Unchanged, old.Revision
		}
	}
	t.Revision = c.Revision
	if old == nil && !missing && !p.take(t) {
		return
	}
	p.plan.Changes = append(p.plan.Changes, c)
	switch at := len(p.plan.Changes) - 1; {
	case old == nil && missing:
		p.unassigned = append(p.unassigned, at)
	case old == nil:
		p.fresh = append(p.fresh, at)
	}
}

// take gives a bit to t, unless somebody has it.
func (p *push) take(t *Template) bool {
	if owner := p.owners[t.BitIndex]; owner != nil {
		retired := ""
		if owner.Retired() {
			retired = " (retired)"
		}
		p.refusal.add("%s: bitIndex %d belongs to %s%s", t.Name, t.BitIndex, owner.Name, retired)
		return false
	}
	p.owners[t.BitIndex] = t
	return true
}

// checkBits looks at the users: a bit that is set was somebody's, so nobody gets it by accident.
func (p *push) checkBits(ctx context.Context, o PushOptions) error {
	var ask []int
	for _, at := range p.fresh {
		ask = append(ask, p.plan.Changes[at].BitIndex)
	}
	users := map[int]int64{}
	if len(ask)+len(p.unassigned) > 0 && o.BitsInUse != nil {
		if len(p.unassigned) > 0 {
			ask = nil
		}
		var err error
		if users, err = o.BitsInUse(ctx, ask); err != nil {
			return fmt.Errorf("which bits do users have: %w", err)
		}
	}
	for _, at := range p.fresh {
		c := &p.plan.Changes[at]
		switch n := users[c.BitIndex]; {
		case n > 0 && o.Adopt:
			c.Adopted = n
		case n > 0:
			p.refusal.add("%s: bit %d is set on %s but no template owns it: import it, or --adopt", c.Name, c.BitIndex, quantity.Of(n, "user"))
		}
	}
	bit := 0
	for _, at := range p.unassigned {
		c := &p.plan.Changes[at]
		for bit <= MaxBitIndex && (p.owners[bit] != nil || users[bit] > 0) {
			bit++
		}
		if bit > MaxBitIndex {
			p.refusal.add("%s: no bit index is free, 0 to %d are all taken", c.Name, MaxBitIndex)
			continue
		}
		c.BitIndex, c.new.BitIndex = bit, bit
		p.owners[bit] = c.new
	}
	return nil
}

// sameAs compares what a push can change.
func (t *Template) sameAs(old *Template) bool {
	a, b := *t, *old
	return a.Subject == b.Subject && a.HTML == b.HTML && a.Text == b.Text && a.From == b.From && a.ReplyTo == b.ReplyTo &&
		a.Preheader == b.Preheader && a.Repeat == b.Repeat && a.Track == b.Track && slices.Equal(a.Parts, b.Parts)
}

// PlanImport registers the names that other services own: {"welcome": 0, …}. What is there already, with the same index,
// is unchanged.
func (r *Registry) PlanImport(ctx context.Context, data []byte) (*Plan, error) {
	names, err := readNames(data)
	if err != nil {
		return nil, refusal(fmt.Errorf("import: %w", err))
	}
	p, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p.addImport(name, names[name])
	}
	if len(p.refusal.Reasons) > 0 {
		return nil, &p.refusal
	}
	return p.plan, nil
}

func (p *push) addImport(name string, bit int) {
	t := &Template{Name: name, BitIndex: bit}
	c := Change{Name: name, Action: Import, BitIndex: bit, new: t}
	switch old := p.registered[name]; {
	case !validName.MatchString(name):
		p.refusal.add("%s: no name for a template; use a-z, 0-9, _ and -, at most 64, the first a letter or digit", printable(name))
		return
	case bit < 0 || bit > MaxBitIndex:
		p.refusal.add("%s: bitIndex %d is outside 0 to %d", name, bit, MaxBitIndex)
		return
	case old != nil && old.BitIndex != bit:
		p.refusal.add("%s: bitIndex %d was %d; an index is forever", name, bit, old.BitIndex)
		return
	case old != nil:
		c.Action, c.Revision, c.old = Unchanged, old.Revision, old
	case !p.take(t):
		return
	}
	p.plan.Changes = append(p.plan.Changes, c)
}

// readNames reads the file of templates import. A name that stands there twice is an error: JSON would take the last.
func readNames(data []byte) (map[string]int, error) {
	const shape = `the file must be one JSON object like {"welcome": 0, "digest": 3}`
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New(shape)
	}
	names := map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shape, err)
		}
		name := key.(string)
		val, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shape, err)
		}
		number, _ := val.(json.Number)
		bit, err := strconv.Atoi(number.String())
		if err != nil {
			return nil, fmt.Errorf("%s: the index is no whole number; %s", printable(name), shape)
		}
		if _, twice := names[name]; twice {
			return nil, fmt.Errorf("%s: stands there twice", printable(name))
		}
		names[name] = bit
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%s: %w", shape, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New(shape)
	}
	return names, nil
}

// PlanRetire takes templates out of use. Their bits stay theirs.
func (r *Registry) PlanRetire(ctx context.Context, now time.Time, names ...string) (*Plan, error) {
	if err := r.Repair(ctx); err != nil {
		return nil, err
	}
	p := &Plan{}
	var refused Refusal
	for _, name := range names {
		old, err := r.Get(ctx, name)
		if errors.Is(err, ErrNotFound) {
			refused.add("%s: no such template", printable(name))
			continue
		}
		if err != nil {
			return nil, err
		}
		c := Change{Name: name, Action: Unchanged, BitIndex: old.BitIndex, Revision: old.Revision, old: old}
		if !old.Retired() {
			t := *old
			t.RetiredAt = now.UTC().Truncate(time.Millisecond)
			c.Action, c.new = Retire, &t
		}
		p.Changes = append(p.Changes, c)
	}
	if len(refused.Reasons) > 0 {
		return nil, &refused
	}
	return p, nil
}
