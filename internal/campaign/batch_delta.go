package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Delta is what one pass added to the counts of a run. It is stored before it is applied to the analytics, under an id of its
// own, and stays in the document until it is marked as applied: no pass begins while one is there, so there is one at most.
type Delta struct {
	Pass int
	At   time.Time // when it was stored
	Rows []DeltaRow
}

// DeltaRow is how many users came to one outcome within one minute.
type DeltaRow struct {
	Minute  time.Time
	Outcome Outcome
	N       int
}

// ID is the id under which the analytics count the delta.
func (d *Delta) ID(run string, n int) string { return fmt.Sprintf("%s/%d/%d", run, n, d.Pass) }

const deltaRowBytes = 7

// pass gathers the users whose outcome stands in no stored delta. It depends on the document alone, so every worker makes the
// same of it.
func (b *Batch) newDelta(pass int) *Delta {
	type key struct {
		minute  uint32
		outcome Outcome
	}
	rows := map[key]int{}
	for i := range b.Users {
		if e := b.entry(i); e.outcome != Waiting && e.flags&flagCounted == 0 {
			rows[key{e.at / 60, e.outcome}]++
		}
	}
	d := &Delta{Pass: pass}
	for k, n := range rows {
		d.Rows = append(d.Rows, DeltaRow{Minute: time.Unix(int64(k.minute)*60, 0).UTC(), Outcome: k.outcome, N: n})
	}
	slices.SortFunc(d.Rows, func(a, b DeltaRow) int {
		return cmp.Or(a.Minute.Compare(b.Minute), cmp.Compare(a.Outcome, b.Outcome))
	})
	return d
}

func (d *Delta) document() bson.D {
	rows := make([]byte, 0, deltaRowBytes*len(d.Rows))
	for _, r := range d.Rows {
		m := uint32(r.Minute.Unix() / 60)
		rows = append(rows, byte(m), byte(m>>8), byte(m>>16), byte(m>>24), byte(r.Outcome), byte(r.N), byte(r.N>>8))
	}
	return bson.D{{Key: "pass", Value: d.Pass}, {Key: "at", Value: d.At}, {Key: "rows", Value: bson.Binary{Data: rows}}}
}

func parseDelta(v bson.RawValue) (*Delta, error) {
	doc, ok := v.DocumentOK()
	if !ok {
		return nil, errors.New("not a document")
	}
	pass, _ := doc.Lookup("pass").AsInt64OK()
	_, rows, _ := doc.Lookup("rows").BinaryOK()
	at, _ := doc.Lookup("at").TimeOK()
	d := &Delta{Pass: int(pass), At: at.UTC()}
	for ; len(rows) >= deltaRowBytes; rows = rows[deltaRowBytes:] {
		m := int64(rows[0]) | int64(rows[1])<<8 | int64(rows[2])<<16 | int64(rows[3])<<24
		d.Rows = append(d.Rows, DeltaRow{Minute: time.Unix(m*60, 0).UTC(), Outcome: Outcome(rows[4]), N: int(rows[5]) | int(rows[6])<<8})
	}
	return d, nil
}
