package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/queue"
)

// DefaultPlanWindow is how many batches may wait for their first pass before planning stops until it is asked for again.
const DefaultPlanWindow = 64

// PlanBatches is where a plan is written.
type PlanBatches interface {
	EnsureIndexes(ctx context.Context, slot time.Time) error
	Insert(ctx context.Context, run *campaign.Run, n int, ids []bson.RawValue) error
	InsertEnd(ctx context.Context, run *campaign.Run, n int) error
	Last(ctx context.Context, run *campaign.Run) (campaign.BatchHead, bool, error)
	Unvisited(ctx context.Context, run *campaign.Run) (int, error)
}

// PlanRuns is what a planner must know of runs.
type PlanRuns interface {
	Run(ctx context.Context, id string) (*campaign.Run, error)
	LookBothWays(ctx context.Context, r *campaign.Run) (campaign.Neighbours, error)
	SetPlanned(ctx context.Context, id string, n int) error
	FailUnplanned(ctx context.Context, id, why string, at time.Time) (bool, error)
	PauseRun(ctx context.Context, id, reason, by string) error
}

// PlannerConfig is what a planner works with.
type PlannerConfig struct {
	Runs    PlanRuns
	Batches PlanBatches
	Users   *mongo.Collection
	// Queue gets the first pass of every batch at once. Nil: that waits for the feeder.
	Queue interface {
		EnqueueBatch(ctx context.Context, t queue.BatchTask) (added bool, err error)
	}
	Clock  *clock.Clock // nil: the system's
	Window int          // 0: DefaultPlanWindow
	Log    *slog.Logger // nil: none
}

// Planner cuts the audience of a run into batches. It is safe for concurrent use, also for one run in several processes.
type Planner struct{ PlannerConfig }

// NewPlanner returns a planner.
func NewPlanner(c PlannerConfig) *Planner {
	if c.Window <= 0 {
		c.Window = DefaultPlanWindow
	}
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Planner{c}
}

// HandlePlan goes on with the plan of a run: behind its last batch, until Window batches have not had their first pass, or the
// audience ends; then it puts the end marker. It holds one batch of ids at a time. A run that is paused, ending, or
// has to wait for an older one is left alone; the feeder asks again.
func (p *Planner) HandlePlan(ctx context.Context, t queue.PlanTask) error {
	run, err := p.Runs.Run(ctx, t.Run)
	if errors.Is(err, campaign.ErrNotFound) {
		return nil // nobody's plan
	}
	if err != nil {
		return err
	}
	if run.PlanDone || !p.plannable(run) {
		return nil
	}
	head, begun, err := p.Batches.Last(ctx, run)
	if err != nil {
		return err
	}
	if !begun {
		if may, err := p.mayBegin(ctx, run); !may || err != nil {
			return err
		}
	}
	return p.goOn(ctx, run, head)
}

// plannable holds while a run may get more batches. A pause does not keep a run that has expired from its end, in which
// everybody of its audience has an outcome.
func (p *Planner) plannable(r *campaign.Run) bool {
	return (r.Paused == "" || p.expired(r)) && (r.State == campaign.RunPlanning || r.State == campaign.RunSending)
}

func (p *Planner) expired(r *campaign.Run) bool { return !p.Clock.Now().Before(r.ExpiresAt()) }

// mayBegin holds once no other run of the campaign is in the way.
func (p *Planner) mayBegin(ctx context.Context, run *campaign.Run) (bool, error) {
	n, err := p.Runs.LookBothWays(ctx, run)
	if err != nil || n.Newer != "" || len(n.Older) > 0 {
		return false, err
	}
	return true, p.Batches.EnsureIndexes(ctx, run.Slot)
}

// goOn plans behind head. Whoever loses a batch to another planner goes on behind that one.
func (p *Planner) goOn(ctx context.Context, run *campaign.Run, head campaign.BatchHead) error {
	for {
		if head.End {
			return p.Runs.SetPlanned(ctx, run.ID, head.N-1)
		}
		unvisited, err := p.Batches.Unvisited(ctx, run)
		if err != nil {
			return err
		}
		err = p.fill(ctx, run, head, p.Window-unvisited)
		if !errors.Is(err, campaign.ErrBatchExists) {
			return err
		}
		if head, _, err = p.Batches.Last(ctx, run); err != nil {
			return err
		}
	}
}

// fill inserts up to room batches behind head, and the end marker where the audience ends before that.
func (p *Planner) fill(ctx context.Context, run *campaign.Run, head campaign.BatchHead, room int) error {
	audience, err := run.Spec.AudienceQuery(run.StartedAt)
	if err != nil {
		return p.refuse(ctx, run, head.N, err)
	}
	c := &cutter{planner: p, run: run, n: head.N, room: room}
	first, from := 0, bson.D(nil)
	c.last = head.LastID
	if head.N > 0 {
		first, from = classOf(head.LastID), behind(head.LastID)
	}
	for i := first; i < len(idClasses) && !c.full(); i++ {
		if i > first || head.N == 0 {
			from = idClasses[i].all
		}
		if from == nil { // a class of one value, which has been planned
			continue
		}
		if err := p.walk(ctx, audience, from, c); err != nil {
			if refused(err) {
				return p.refuse(ctx, run, c.n, err)
			}
			return err
		}
	}
	if c.full() {
		return nil
	}
	if err := p.Batches.InsertEnd(ctx, run, c.n+1); err != nil {
		return err
	}
	p.Log.Info("a run is planned", "campaign", run.Campaign, "run", run.ID, "batches", c.n)
	return p.Runs.SetPlanned(ctx, run.ID, c.n)
}

// walk hands the ids of one class to c. The limit lets a server that sorts in memory keep no more than what is asked for.
func (p *Planner) walk(ctx context.Context, audience, from bson.D, c *cutter) error {
	for {
		asked := int64(c.room) * campaign.MaxBatchUsers
		got, err := p.stream(ctx, audience, from, asked, c)
		if err != nil || c.full() || got < asked {
			return err
		}
		if from = behind(c.last); from == nil { // batches full of long ids leave room for more users
			return nil
		}
	}
}

func (p *Planner) stream(ctx context.Context, audience, from bson.D, limit int64, c *cutter) (got int64, err error) {
	filter := bson.D{{Key: "$and", Value: bson.A{audience, bson.D{{Key: "_id", Value: from}}}}}
	cur, err := p.Users.Find(ctx, filter, options.Find().
		SetProjection(bson.D{{Key: "_id", Value: 1}}).
		SetSort(bson.D{{Key: "_id", Value: 1}}).
		SetLimit(limit).SetBatchSize(2*campaign.MaxBatchUsers))
	if err != nil {
		return 0, fmt.Errorf("plan %s: audience: %w", c.run.ID, err)
	}
	defer cur.Close(context.WithoutCancel(ctx))
	for cur.Next(ctx) {
		got++
		if err := c.add(ctx, cur.Current.Lookup("_id")); err != nil || c.full() {
			return got, err
		}
	}
	if err := cur.Err(); err != nil {
		return got, fmt.Errorf("plan %s: audience: %w", c.run.ID, err)
	}
	return got, c.flush(ctx)
}

// errOrder says that a server gave an id that stands before the one that it gave last. Planning behind a batch would then
// repeat users, and leave out others.
var errOrder = errors.New("the server does not sort the _ids by the order in which it compares them")

// refused holds for an answer that says that the query is wrong and will be tomorrow.
func refused(err error) bool {
	if errors.Is(err, errOrder) {
		return true
	}
	var ce mongo.CommandError
	if !errors.As(err, &ce) {
		return false
	}
	switch ce.Code {
	case 2, 9, 14, 40, 51091, 168, 31249, 31253, 40324, 40353: // BadValue, FailedToParse, TypeMismatch, bad regular expressions, bad expressions
		return true
	}
	return false
}

// refuse ends a run whose audience can't be asked for. One that has n batches already is paused, for somebody to look at until it
// expires: then those are its audience.
func (p *Planner) refuse(ctx context.Context, run *campaign.Run, n int, why error) error {
	reason := "the audience cannot be asked for: " + why.Error()
	p.Log.Error("a run cannot be planned", "campaign", run.Campaign, "run", run.ID, "err", why)
	if n > 0 && p.expired(run) {
		return p.Batches.InsertEnd(ctx, run, n+1)
	}
	if n > 0 {
		err := p.Runs.PauseRun(ctx, run.ID, reason, "planner")
		if errors.Is(err, campaign.ErrRunFinished) {
			return nil
		}
		return err
	}
	_, err := p.Runs.FailUnplanned(ctx, run.ID, reason, p.Clock.Now())
	return err
}

// cutter gathers ids until they are a batch.
type cutter struct {
	planner *Planner
	run     *campaign.Run
	n       int  // the last batch that is there
	room    int  // batches that may be inserted
	stopped bool // the run was paused, or is ending

	ids  []bson.RawValue
	size int           // bytes of ids
	last bson.RawValue // the last id that was handed in, or of the batch before
}

// full reports that no more ids are wanted now.
func (c *cutter) full() bool { return c.room <= 0 || c.stopped }

// add puts one more id into the batch; before that it closes a batch that would become too large.
func (c *cutter) add(ctx context.Context, id bson.RawValue) error {
	size := campaign.IDBytes(id)
	if !ascends(c.last, id) {
		return fmt.Errorf("plan %s: _id %s comes behind %s: %w", c.run.ID, id, c.last, errOrder)
	}
	id = bson.RawValue{Type: id.Type, Value: bytes.Clone(id.Value)} // the cursor reads on over it
	if size > campaign.MaxBatchIDBytes {
		c.planner.Log.Error("a user is left out: the _id is larger than a batch may be", "run", c.run.ID, "bytes", size)
		c.last = id
		return nil
	}
	if len(c.ids) == campaign.MaxBatchUsers || c.size+size > campaign.MaxBatchIDBytes {
		if err := c.flush(ctx); err != nil || c.full() {
			return err
		}
	}
	c.ids = append(c.ids, id)
	c.size += size
	c.last = id
	return nil
}

// flush inserts what has been gathered, if the run still wants it.
func (c *cutter) flush(ctx context.Context) error {
	if len(c.ids) == 0 {
		return nil
	}
	p := c.planner
	now, err := p.Runs.Run(ctx, c.run.ID)
	if err != nil {
		return err
	}
	if !p.plannable(now) {
		c.stopped = true
		return nil
	}
	if err := p.Batches.Insert(ctx, c.run, c.n+1, c.ids); err != nil {
		return err
	}
	c.n++
	c.room--
	c.ids, c.size = c.ids[:0], 0
	if p.Queue != nil { // a queue that is out of reach is the feeder's business
		if _, err := p.Queue.EnqueueBatch(ctx, queue.BatchTask{Run: c.run.ID, N: c.n, Pass: 1}); err != nil {
			p.Log.Warn("a new batch waits for the feeder", "run", c.run.ID, "batch", c.n, "err", err)
		}
	}
	return nil
}

// idClass is a part of the order of ids in which $gt and $gte find everything: they compare within one group of BSON types only.
type idClass struct {
	types []bson.Type
	has   func(id bson.RawValue) bool // which values of these types; nil: all
	all   bson.D                      // finds every value of the class
	below any                         // what its values are less than; nil: no bound
	one   bool                        // it has one value only
}

// yearOne is where dates are cut in two: an operand that is earlier is refused by servers that count on calendars.
const yearOne = bson.DateTime(-62_135_596_800_000)

// idClasses are the classes that an _id can be of, in the order in which MongoDB sorts them. Arrays, regular expressions and
// undefined can't be an _id. NaN sorts before all other numbers, and compares with none.
var idClasses = []idClass{
	{types: []bson.Type{bson.TypeMinKey}, all: is(bson.MinKey{}), one: true},
	{types: []bson.Type{bson.TypeNull}, all: is(nil), one: true},
	{types: numbers, has: isNaN, all: is(math.NaN()), one: true},
	{types: numbers, all: atLeast(math.Inf(-1))},
	{types: []bson.Type{bson.TypeString, bson.TypeSymbol}, all: atLeast("")},
	{types: []bson.Type{bson.TypeEmbeddedDocument}, all: atLeast(bson.D{})},
	{types: []bson.Type{bson.TypeBinary}, all: atLeast(bson.Binary{})},
	{types: []bson.Type{bson.TypeObjectID}, all: atLeast(bson.ObjectID{})},
	{types: []bson.Type{bson.TypeBoolean}, all: atLeast(false)},
	{types: []bson.Type{bson.TypeDateTime}, has: isBeforeYearOne, all: bson.D{{Key: "$lt", Value: yearOne}}, below: yearOne},
	{types: []bson.Type{bson.TypeDateTime}, all: atLeast(yearOne)},
	{types: []bson.Type{bson.TypeTimestamp}, all: atLeast(bson.Timestamp{})},
	{types: []bson.Type{bson.TypeJavaScript}, all: atLeast(bson.JavaScript(""))},
	{types: []bson.Type{bson.TypeMaxKey}, all: is(bson.MaxKey{}), one: true},
}

var numbers = []bson.Type{bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128}

func is(v any) bson.D      { return bson.D{{Key: "$eq", Value: v}} }
func atLeast(v any) bson.D { return bson.D{{Key: "$gte", Value: v}} }

// classOf is the index of the class of an id; behind the last one for a type that none has.
func classOf(id bson.RawValue) int {
	for i, c := range idClasses {
		if slices.Contains(c.types, id.Type) && (c.has == nil || c.has(id)) {
			return i
		}
	}
	return len(idClasses)
}

// behind finds the ids of the class of id that sort after it; nil where there can be none.
func behind(id bson.RawValue) bson.D {
	i := classOf(id)
	if i == len(idClasses) || idClasses[i].one {
		return nil
	}
	after := bson.D{{Key: "$gt", Value: id}}
	if below := idClasses[i].below; below != nil {
		after = append(after, bson.E{Key: "$lt", Value: below})
	}
	return after
}

// ascends reports whether b may come behind a: false only where MongoDB's order is plain. That of strings depends on the
// collection's collation, so of them only the same one twice is told.
func ascends(a, b bson.RawValue) bool {
	if x, ok := smallNumber(a); ok {
		if y, ok := smallNumber(b); ok {
			return x < y
		}
	}
	if a.Type != b.Type {
		return true
	}
	switch a.Type {
	case bson.TypeString:
		return !bytes.Equal(a.Value, b.Value)
	case bson.TypeObjectID:
		return bytes.Compare(a.Value, b.Value) < 0
	case bson.TypeBinary: // by length, then subtype, then bytes
		as, ab := a.Binary()
		bs, bb := b.Binary()
		if as == bson.TypeBinaryBinaryOld || bs == bson.TypeBinaryBinaryOld { // their inner length counts, too
			return !bytes.Equal(a.Value, b.Value)
		}
		return cmp.Or(cmp.Compare(len(ab), len(bb)), cmp.Compare(as, bs), bytes.Compare(ab, bb)) < 0
	case bson.TypeInt32, bson.TypeInt64:
		return a.AsInt64() < b.AsInt64()
	case bson.TypeDateTime:
		return a.DateTime() < b.DateTime()
	}
	return true
}

// smallNumber is the value of a number that is exact as a double.
func smallNumber(id bson.RawValue) (float64, bool) {
	switch id.Type {
	case bson.TypeDouble:
		f := id.Double()
		return f, math.Abs(f) < 1<<53
	case bson.TypeInt32, bson.TypeInt64:
		n := id.AsInt64()
		return float64(n), n > -1<<53 && n < 1<<53
	}
	return 0, false
}

func isNaN(id bson.RawValue) bool {
	if f, ok := id.DoubleOK(); ok {
		return math.IsNaN(f)
	}
	d, ok := id.Decimal128OK()
	return ok && d.IsNaN()
}

func isBeforeYearOne(id bson.RawValue) bool {
	ms, ok := id.DateTimeOK()
	return ok && bson.DateTime(ms) < yearOne
}
